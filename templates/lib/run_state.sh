# shellcheck shell=sh
# run_state: what became of a run. POSIX sh: the queries use it too.

# run_state DIR: running | finished RC | died | queued (waits for its turn) | waiting (created, never
# started; it waits for nothing).
run_state() { find_state "$1" && printf '%s\n' "$_state"; }

# in_state DIR WORD: starts no process.
in_state() { find_state "$1" && [ "$_state" = "$2" ]; }

# find_state DIR: sets _state.
find_state() {
  _runner='' _child='' _state=running
  if [ ! -f "$1/exit" ] && [ -f "$1/pid" ]; then
    { read -r _runner && read -r _child; } <"$1/pid" || :
    if alive "$_child" || alive "$_runner"; then return; fi
  fi
  # Read last: a run may have ended in between.
  if [ -f "$1/exit" ]; then
    read -r _rc <"$1/exit" || :
    _state="finished $_rc"
  elif [ -f "$1/pid" ]; then
    _state=died
  elif [ -f "$1/queue" ]; then
    _state=queued
  else
    _state=waiting
  fi
}

# run_with_id RUNS ID: prints the run made under this id, the same however often it is asked for; 1 if there is none.
run_with_id() {
  for _run in "$1"/*/; do
    _run=${_run%/} _id=
    { read -r _id <"$_run/id"; } 2>/dev/null || :
    [ "$_id" != "$2" ] || { printf '%s\n' "$_run" && return; }
  done
  return 1
}
