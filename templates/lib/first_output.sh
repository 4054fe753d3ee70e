# shellcheck shell=sh disable=SC2154 # set in run_state
# first_output: what a run that just started prints first. POSIX sh: the queries use it.

# await_output RUN SECONDS: waits until it has printed something, or is over. A queued run prints nothing yet.
await_output() {
  _left=$(($2 * 100)) # hundredths of a second
  ! in_state "$1" queued || _left=0
  until [ -s "$1/log" ] || [ -f "$1/exit" ] || [ "$_left" -le 0 ]; do
    # Looks less often over time: each look starts a process, and the training that is starting needs the CPU.
    _pause=$((($2 * 100 - _left) / 5 + 2))
    [ "$_pause" -le 50 ] || _pause=50
    sleep "0.$((_pause / 10))$((_pause % 10))"
    _left=$((_left - _pause))
  done
}

# show_output RUN MOMENT: prints its state, then its first output, or its last if it failed. Waits a moment first:
# what fails at its start says so right after its first line.
show_output() {
  [ -f "$1/exit" ] || in_state "$1" queued || sleep "$2"
  find_state "$1"
  printf '%s\n' "$_state"
  case $_state in
    'finished 0' | [!f]*) head -c 4000 "$1/log" ;;
    *) tail -c 4000 "$1/log" ;;
  esac 2>/dev/null
}
