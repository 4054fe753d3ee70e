# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# log_part: prints a part of a log: from a byte on, until a second of the box's clock, lines that match, the last ones.
# library: log_times

find_home
log=$box_home/$file
[ -f "$log" ] || exit 0
end=$(wc -c <"$log")
size=$end
if [ -n "$until" ] && [ -f "${log%/*}/times" ]; then
  end=$(written_until "${log%/*}" "$until")
fi
[ "$end" -gt "$start" ] || exit 0
if [ -n "$lines" ] && [ -z "$pattern" ]; then
  start=$(lines_before "$log" "$start" "$end" "$lines")
fi

part() {
  if [ "$end" -lt "$size" ]; then
    tail -c "+$((start + 1))" "$log" | head -c "$((end - start))"
  else
    tail -c "+$((start + 1))" "$log"
  fi
}

# Bytes, whatever the box's language: a log may hold any.
matching() {
  if [ "$start" -eq 0 ] && [ "$end" -eq "$size" ]; then
    LC_ALL=C grep -aE -e "$pattern" "$log" # half the time
  else
    part | LC_ALL=C grep -aE -e "$pattern"
  fi
}

# The last matches are mostly near the end: look there first.
near_the_end() {
  first=$start window=4194304
  while start=$((end - window)) && [ "$start" -gt "$first" ]; do
    # The cut line is no match.
    [ "$(part | tail -n +2 | LC_ALL=C grep -acE -e "$pattern")" -lt "$lines" ] || return 0
    window=$((window * 16))
  done
  start=$first
}

if [ -z "$pattern" ]; then
  part
elif [ -n "$lines" ]; then
  near_the_end
  matching | tail -n "$lines"
else
  matching
fi
exit 0
