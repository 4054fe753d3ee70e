# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# setup_end: is this setup still at work, and how much did it report? That one who `follows` it asks is noted for onbox/client.py.

find_home
folder=$box_home/setups/$setup_id
state=running process=
if [ -f "$folder/pid" ]; then
  read -r process <"$folder/pid"
  alive "$process" || state=gone
fi
[ -z "$follows" ] || [ "$state" = gone ] || printf '%s\n' "$$" 2>/dev/null >"$folder/client"
printf '%s\t%s\n' "$state" "$(stat -c %s "$folder/events.jsonl" 2>/dev/null || printf 0)"
