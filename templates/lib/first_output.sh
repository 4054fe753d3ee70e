# shellcheck shell=sh disable=SC2154 # set in run_state
# first_output: what a run that just started prints first. POSIX sh: the queries use it.

# await_output RUN SECONDS: waits until it has printed a line of a training (`first_line`, not `not_first`), or is over;
# for 2 s after another line that is neither: what fails at its start is over by then. A queued run prints nothing yet.
await_output() {
  _left=$(($2 * 100)) _passed=0 # hundredths of a second
  ! in_state "$1" queued || _left=0
  until [ "$_left" -le 0 ] || [ -f "$1/exit" ] || in_state "$1" died; do
    if [ -s "$1/log" ]; then
      _said=$(head -c 65536 "$1/log" | tr '\000\r' '[\n*]' | LC_ALL=C grep -viE "$not_first") || :
      ! printf '%s\n' "$_said" | LC_ALL=C grep -qiE "$first_line" || break
      [ -z "$_said" ] || [ "$_left" -le 200 ] || _left=200
    fi
    # Looks less often over time: each look starts a process, and the training that is starting needs the CPU.
    _pause=$((_passed / 5 + 1))
    [ "$_pause" -le 50 ] || _pause=50
    sleep "0.$((_pause / 10))$((_pause % 10))"
    _left=$((_left - _pause)) _passed=$((_passed + _pause))
  done
}

# show_output RUN MOMENT: prints its state (`nothing` after it: no word and no result came of it), then its first output, or its last if it failed. Waits a moment first:
# what fails at its start says so right after its first line.
show_output() {
  [ -f "$1/exit" ] || in_state "$1" queued || sleep "$2"
  find_state "$1"
  if [ "$_state" = 'finished 0' ] && [ ! -s "$1/log" ]; then
    _left=20 # what it made is noted after its end
    until [ ! -s "$1/results" ] || [ -e "$1/results.made" ] || [ "$_left" -eq 0 ]; do sleep 0.1 && _left=$((_left - 1)); done
    [ "$_left" -eq 0 ] || { [ -s "$1/results" ] && ! grep -qF '"files":{}' "$1/results.made"; } ||
      _state='finished 0 nothing'
  fi
  printf '%s\n' "$_state"
  case $_state in
    'finished 0'* | [!f]*) head -c 4000 "$1/log" ;;
    *) tail -c 4000 "$1/log" ;;
  esac 2>/dev/null
}
