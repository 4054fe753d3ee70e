# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# setup_end: is this setup still at work, and how much did it tell?

find_home
folder=$box_home/setups/$setup_id
if [ -f "$folder/pid" ] && ! alive "$(cat "$folder/pid")"; then state=gone; else state=running; fi
printf '%s\t%s\n' "$state" "$(stat -c %s "$folder/events.jsonl" 2>/dev/null || printf 0)"
