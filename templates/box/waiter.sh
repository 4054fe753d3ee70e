#!/usr/bin/env bash
# waiter: waits for a queued run's turn, then becomes its runner.
# usage: bash waiter.sh RUN_DIR ENV_FILE
# shellcheck disable=SC2154,SC2317 # the library sets it, and calls it
{
  # library: process run_state queue

  run=$1 env_file=$2 me=$(identity $$)

  detached() { exec setsid "$@"; }

  note() { printf '%s\n' "$me" >"$run/waiter.$$" && mv -f "$run/waiter.$$" "$run/waiter"; }

  # take_turn: claims the run if its turn has come; 1 if it has to wait.
  take_turn() {
    {
      flock 7
      [ "$(run_state "$run")" = queued ] && attended "$run" && [ "$_waiter" = "$me" ] || exit 0
      # Replaces waiters that were killed or lost in a restart of the box: their runs would block the ones after them.
      revive_queue "${run%/*/*}" "${0%/*}" "$env_file"
      may_begin "$run"
      case $? in
        0) keep_results && claim "$run" ;;
        1) return 1 ;;
        *) leave_queue "$run" "$(cat "$run/queue")" && exit 0 ;;
      esac
    } 7>>"${run%/*/*/*}/queue.lock"
  }

  # Waits until the results of earlier runs, in a folder that trees share, are kept or at home.
  keep_results() {
    local python=${run%/*/*/*}/agent/bin/python
    [ -x "$python" ] || python=$(command -v python3) || return 0
    "$python" -I -S -B "${0%/*}/onbox/__main__.py" results.keep_results begin "$run" >"$run/results.blocked" && rm -f "$run/results.blocked"
  }

  # show NAME: opens a session of this name, a window onto the run; fails if another repository's session has the name.
  show() {
    tmux -u -L boxstrap -f /dev/null new-session -d -x 200 -y 50 -s "$1" bash "${0%/*}/window.sh" "$run" \; \
      set-option remain-on-exit on && printf '%s\n' "$1" >"$run/session"
  }

  trap : HUP
  attended "$run" || note || exit 1
  until take_turn; do sleep 1; done
  name=${run##*/} key=${run%/*}
  if command -v tmux; then show "$name" || show "$name-${key##*/}"; fi >/dev/null 2>&1
  exec bash "${0%/*}/runner.sh" "$run" "$env_file"
}
