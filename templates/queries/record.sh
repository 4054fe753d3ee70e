# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# record: what boxstrap noted of a run, and its log from a byte on. Each part comes after a line that only the caller
# can know: a log may contain anything. The last line of that kind says which bytes of the log come.
# library: log_times queries/metrics

find_home
run=$box_home/runs/$repo_key/$name
part() { printf '\n%s %s\n' "$mark" "$1"; }
# On a file system that can't punch holes, the kept part may be on its way back to its place.
for _ in 1 2 3 4 5 6 7 8 9 10; do
  [ ! -e "$run/log.aside" ] || sleep 0.5
done
for note in $notes; do
  [ ! -f "$run/$note" ] || { part "$note" && head -c "$most_note" "$run/$note"; }
done
part metric
(newest_metrics "$run")
size=$(stat -c %s "$run/log" 2>/dev/null) || size=0
begin=$(kept_from "$run")
if [ "$at" -le "$size" ]; then
  [ "$at" -le "$begin" ] || begin=$at
elif [ -f "$run/log_again" ]; then
  # A line that was cut there comes whole: a secret may lie in it.
  begin=$(lines_before "$run/log" "$begin" "$(goes_on_at "$run" "$at")" 1)
fi # else it was emptied: from its start
[ "$((size - begin))" -le "$most" ] || begin=$((size - most))
[ "$begin" -le "$size" ] || begin=$size
part "log $begin $((size - begin))"
[ "$begin" -eq "$size" ] || { tail -c "+$((begin + 1))" "$run/log" | head -c "$((size - begin))"; }
