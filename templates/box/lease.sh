#!/usr/bin/env bash
# lease: keeps the box's monitor running as long as there is a lease, and starts it again if it was killed.
# usage: bash lease.sh BOX_HOME
{
  # library: process

  box_home=$1
  # One per box.
  exec 7>>"$box_home/lease.lock"
  flock -n 7 || exit 0
  identity $$ >"$box_home/lease.pid"
  cd /
  while [ -f "$box_home/lease.json" ]; do
    "$box_home/agent/bin/python" -I -B "${0%/*}/onbox/__main__.py" runs.monitor "$box_home" --waits </dev/null >/dev/null 2>&1 7>&-
    sleep 5 7>&- # else it would hold the lock for one that was killed
  done
  exit
}
