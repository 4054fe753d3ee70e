# shellcheck shell=sh
# run_state: what became of a run. POSIX sh: the questions use it too.

# run_state DIR: running | finished RC | died | waiting (made, never begun).
run_state() {
  if [ -f "$1/exit" ]; then
    printf 'finished %s\n' "$(cat "$1/exit")"
  elif [ ! -f "$1/pid" ]; then
    printf 'waiting\n'
  elif alive "$(sed -n 2p "$1/pid")" || alive "$(sed -n 1p "$1/pid")"; then
    printf 'running\n'
  elif [ -f "$1/exit" ]; then
    printf 'finished %s\n' "$(cat "$1/exit")"
  else
    printf 'died\n'
  fi
}

# alive_run RUNS_DIR: the name of the run that lives there; nothing and 1 where none does.
alive_run() {
  for _run in "$1"/*/; do
    [ -d "$_run" ] || continue
    if [ "$(run_state "${_run%/}")" = running ]; then
      basename "$_run"
      return 0
    fi
  done
  return 1
}
