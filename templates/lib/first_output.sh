# shellcheck shell=sh
# first_output: what a run that just began says first. POSIX sh: the queries use it.

# await_output RUN SECONDS: until it has said something, or is over. What waits for its turn says nothing yet.
await_output() {
  _left=$(($2 * 50))
  [ "$(run_state "$1")" != queued ] || _left=0
  until [ -s "$1/log" ] || [ -f "$1/exit" ] || [ "$_left" -le 0 ]; do
    # Whoever looks closely begins processes, which a training's own start could use.
    if [ "$_left" -gt $(($2 * 50 - 50)) ]; then _pause=0.02; else _pause=0.1 _left=$((_left - 4)); fi
    _left=$((_left - 1))
    sleep "$_pause"
  done
}

# show_output RUN MOMENT: its state, then its first output; of one that failed at once its last. A moment more: what
# fails at its start says so right after its first line.
show_output() {
  [ -f "$1/exit" ] || [ "$(run_state "$1")" = queued ] || sleep "$2"
  printf '%s\n' "$(run_state "$1")"
  if [ -f "$1/exit" ] && [ "$(cat "$1/exit")" != 0 ]; then tail -c 4000 "$1/log"; else head -c 4000 "$1/log"; fi 2>/dev/null
}
