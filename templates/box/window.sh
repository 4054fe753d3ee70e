#!/usr/bin/env bash
# window: shows a run's log, in a session that replaces the run's own.
# usage: bash window.sh RUN_DIR
{
  # library: process run_state

  run=$1
  read -r runner <"$run/pid"
  # Ctrl-C ends the run, as in its own session.
  trap 'alive "$runner" && kill -TERM "${runner%% *}"' INT
  kept=0
  { read -r _ kept <"$run/times"; } 2>/dev/null
  tail -c "+$((${kept:-0} + 1))" -F "$run/log" 2>/dev/null &
  shown=$!
  while in_state "$run" running; do sleep 0.5; done
  sleep 0.2
  kill "$shown" 2>/dev/null
  exit
}
