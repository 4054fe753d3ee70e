# shellcheck shell=sh
# log_times: from which byte on a run's log is kept, and where it was at a time, by `times`. POSIX sh: queries use it.

# kept_from RUN: prints the byte before which its log was dropped.
kept_from() {
  _first=''
  { read -r _ _first <"$1/times"; } 2>/dev/null || :
  printf '%s\n' "${_first:-0}"
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
