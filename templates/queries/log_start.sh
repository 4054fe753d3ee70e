# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# log_start: from which byte on a run's log is there, or was written since a second. Nothing where no times were noted.

find_home
run=$box_home/runs/$repo_key/$name
# Where a file system makes no holes, what is kept may be on its way back to its place.
for _ in 1 2 3 4 5 6 7 8 9 10; do
  [ ! -e "$run/log.aside" ] || sleep 0.5
done
if [ -z "$since" ]; then
  kept_from "$run"
elif [ -f "$run/times" ]; then
  written_since "$run" "$since"
fi
