# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# tail: the end of a file below boxstrap's folder.

find_home
tail -c "$bytes" "$box_home/$file" 2>/dev/null
