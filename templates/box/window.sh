#!/usr/bin/env bash
# window: what a run says, for a session that took the place of the run's own.
# usage: bash window.sh RUN_DIR
{
  run=$1
  read -r runner _ <"$run/pid"
  # Ctrl-C ends the run, as in its own session.
  trap 'kill -TERM "$runner" 2>/dev/null' INT
  tail -n +1 -F "$run/log" 2>/dev/null &
  shown=$!
  until [ -f "$run/exit" ] || ! kill -0 "$runner" 2>/dev/null; do sleep 0.5; done
  sleep 0.2
  kill "$shown" 2>/dev/null
  exit
}
