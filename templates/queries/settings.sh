# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# settings: writes an editor's settings from standard input, whole or not at all, if nobody changed them.

file=$HOME/$settings
mkdir -p "${file%/*}"
if [ -e "$file" ]; then
  file=$(readlink -f "$file")
  now=$(cksum <"$file")
  cp -p "$file" "$file.new"
else
  now=
fi
head -c "$bytes" >"$file.new"
if [ "$(wc -c <"$file.new")" -eq "$bytes" ] && [ "$now" = "$sum" ]; then
  mv -f "$file.new" "$file" && printf 'written\n'
else
  rm -f "$file.new"
fi
