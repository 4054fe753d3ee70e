# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# tail: the end of a file below boxstrap's folder, or what follows its first bytes; with `follows` also as it grows, until
# this connection ends.

find_home
set -- -c "$bytes" "$box_home/$file"
[ -z "$follows" ] || set -- -F "$@"
# GNU's ends with its parent and looks ten times a second; busybox's has neither option.
[ -z "$follows" ] || ! tail --version >/dev/null 2>&1 || set -- -s 0.1 --pid="$PPID" "$@"
exec tail "$@" 2>/dev/null
