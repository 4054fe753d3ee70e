# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# log_start: prints where a reader goes on that found zeros at `start` of a run's log, or where it was written since a
# second. Nothing without `times`.
# With `lines`: where the last lines start of what is after `start`.
# library: log_times

find_home
run=$box_home/runs/$repo_key/$name
# On a file system that can't punch holes, the kept part may be on its way back to its place.
for _ in 1 2 3 4 5 6 7 8 9 10; do
  [ ! -e "$run/log.aside" ] || sleep 0.5
done
if [ -n "$lines" ]; then
  lines_before "$run/log" "$start" "$(wc -c <"$run/log")" "$lines"
elif [ -z "$since" ]; then
  goes_on_at "$run" "$start"
elif [ -f "$run/times" ]; then
  written_since "$run" "$since"
fi
