# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# first: waits for a run's first output, or its end, and shows it.

find_home
run=$box_home/runs/$repo_key/$name
waited=0
# What waits for its turn says nothing yet.
[ "$(run_state "$run")" != queued ] || tenths=0 moment=0
while [ ! -s "$run/log" ] && [ ! -f "$run/exit" ] && [ "$waited" -lt "$tenths" ]; do
  waited=$((waited + 1))
  sleep 0.1
done
# A moment more: what fails at its start says so right after its first line.
[ -f "$run/exit" ] || sleep "$moment"
printf '%s\n' "$(run_state "$run")"
if [ -f "$run/exit" ] && [ "$(cat "$run/exit")" != 0 ]; then tail -c 4000 "$run/log"; else head -c 4000 "$run/log"; fi
