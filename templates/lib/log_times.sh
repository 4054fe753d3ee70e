# shellcheck shell=sh
# log_times: from which byte on a run's log is kept, and where it was at a time, by `times`. POSIX sh: queries use it.

# kept_from RUN: prints the byte before which its log was dropped.
kept_from() {
  _first=''
  { read -r _ _first <"$1/times"; } 2>/dev/null || :
  printf '%s\n' "${_first:-0}"
}

# goes_on_at RUN BYTE: prints where a reader goes on that found zeros at this byte of its log, or before it.
goes_on_at() {
  _on=$2 _size=$({ wc -c <"$1/log"; } 2>/dev/null) || _size=0
  # Without holes, what was written while the kept part was put back is lost, and its place is written again.
  if [ "$_on" -gt "$_size" ]; then
    { read -r _on <"$1/log_again"; } 2>/dev/null || _on=$_size
    [ "$_on" -le "$_size" ] || _on=0 # it was emptied later
  fi
  _kept=$(kept_from "$1")
  [ "$_kept" -le "$_on" ] || _on=$_kept
  printf '%s\n' "$_on"
}

# written_since RUN SECOND: prints where the line starts that was being written then; all later output comes after it.
written_since() {
  _at=$(awk -v since="$2" 'NR > 1 && $1 >= since { exit } { at = $2 } END { print at }' "$1/times")
  _back=$((_at - $(kept_from "$1")))
  [ "$_back" -le 65536 ] || _back=65536
  # The added letter makes sure that there is a last line: what was written of it, plus that letter.
  _part=$({ tail -c "+$((_at - _back + 1))" "$1/log" | head -c "$_back" && printf x; } | tail -n 1 | wc -c)
  printf '%s\n' "$((_at - _part + 1))"
}

# written_until RUN SECOND: prints where the line ends that was being written then; the log's size if nothing came later.
written_until() {
  _at=$(awk -v until="$2" 'NR > 1 && $1 >= until { print $2; exit }' "$1/times")
  _size=$(wc -c <"$1/log")
  if [ -z "$_at" ] || [ "$_at" -ge "$_size" ]; then printf '%s\n' "$_size" && return; fi
  # From the byte before: a line that was whole by then has no rest.
  _rest=$(tail -c "+$_at" "$1/log" | head -n 1 | wc -c)
  printf '%s\n' "$((_at == 0 ? 0 : _at - 1 + _rest))"
}

# lines_before FILE FROM END COUNT: prints where the last COUNT lines start of what lies between the bytes FROM and END.
lines_before() {
  _window=65536
  while _at=$(($3 - _window)) && [ "$_at" -gt "$2" ] &&
    [ "$(tail -c "+$((_at + 1))" "$1" | head -c "$_window" | wc -l)" -le "$4" ]; do
    _window=$((_window * 16))
  done
  [ "$_at" -gt "$2" ] || _at=$2
  _last=$(tail -c "+$((_at + 1))" "$1" | head -c "$(($3 - _at))" | tail -n "$4" | wc -c)
  printf '%s\n' "$(($3 - _last))"
}
