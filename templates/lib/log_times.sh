# shellcheck shell=sh
# log_times: where a run's log is kept from, and where it was at a time, by its index `times`. POSIX sh: the queries use it.

# kept_from RUN: the byte before which its log was let go.
kept_from() {
  _first=''
  { read -r _ _first <"$1/times"; } 2>/dev/null || :
  printf '%s\n' "${_first:-0}"
}

# written_since RUN SECOND: where the line begins that was being written then; all that came later lies behind it.
written_since() {
  _at=$(awk -v since="$2" 'NR > 1 && $1 >= since { exit } { at = $2 } END { print at }' "$1/times")
  _back=$((_at - $(kept_from "$1")))
  [ "$_back" -le 65536 ] || _back=65536
  # With a letter behind it the last line is what was written of it, and that letter.
  _part=$({ tail -c "+$((_at - _back + 1))" "$1/log" | head -c "$_back" && printf x; } | tail -n 1 | wc -c)
  printf '%s\n' "$((_at - _part + 1))"
}
