# shellcheck shell=sh disable=SC2154 # set in run_state
# first_output: what a run that just began says first. POSIX sh: the queries use it.

# await_output RUN SECONDS: until it has said something, or is over. What waits for its turn says nothing yet.
await_output() {
  _left=$(($2 * 100)) # hundredths of a second
  ! in_state "$1" queued || _left=0
  until [ -s "$1/log" ] || [ -f "$1/exit" ] || [ "$_left" -le 0 ]; do
    # Less often the longer it lasts: each look begins a process, which a training's own start could use.
    _pause=$((($2 * 100 - _left) / 5 + 2))
    [ "$_pause" -le 50 ] || _pause=50
    sleep "0.$((_pause / 10))$((_pause % 10))"
    _left=$((_left - _pause))
  done
}

# show_output RUN MOMENT: its state, then its first output; of one that failed at once its last. A moment more: what
# fails at its start says so right after its first line.
show_output() {
  [ -f "$1/exit" ] || in_state "$1" queued || sleep "$2"
  find_state "$1"
  printf '%s\n' "$_state"
  case $_state in
    'finished 0' | [!f]*) head -c 4000 "$1/log" ;;
    *) tail -c 4000 "$1/log" ;;
  esac 2>/dev/null
}
