#!/usr/bin/env bash
# node_watch: holds a run together with those of the other nodes, and asks it to end when one of them ends it, or when
# nobody holds it any more.
# usage: bash node_watch.sh RUNNER RUN_DIR
# RUNNER is its process, as `identity` writes it.
{
  # library: process

  runner=$1 run=$2 own=0 code='' ours=("${2%/*/*/*}/agent/bin/python" -I -S -B "${0%/*}/onbox/__main__.py")
  "${ours[@]}" nodes.watch "$run"
  read -r own <"$run/nodes/rank"
  [ -s "$run/nodes/over" ] || echo "$own 143 unwatched" >"$run/nodes/over"
  # Its command has ended already, or is just asked to: the runner waits for this process.
  read -r code _ <"$run/nodes/code"
  [ -z "$code" ] || exit 0
  if alive "$runner"; then kill -TERM "${runner%% *}"; else "${ours[@]}" run_processes end "$run"; fi
  exit
}
