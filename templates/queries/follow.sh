# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# follow: prints a file from a byte on, as it grows, until this connection ends.

find_home
file=$box_home/$file
# GNU tail ends with its parent and looks ten times a second; busybox has neither option.
if tail --version >/dev/null 2>&1; then
  exec tail -c "+$from" -s 0.1 --pid="$PPID" -F "$file" 2>/dev/null
fi
exec tail -c "+$from" -F "$file" 2>/dev/null
