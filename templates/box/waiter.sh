#!/usr/bin/env bash
# waiter: waits for the turn of a run of the queue, and then is its runner.
# usage: bash waiter.sh RUN_DIR ENV_FILE
# shellcheck disable=SC2154,SC2317 # the library sets it, and calls it
{
  # library: process run_state queue

  run=$1 env_file=$2 me=$(identity $$)

  detached() { exec setsid "$@"; }

  note() { printf '%s\n' "$me" >"$run/waiter.$$" && mv -f "$run/waiter.$$" "$run/waiter"; }

  # take_turn: 1 where it has to wait.
  take_turn() {
    {
      flock 7
      [ "$(run_state "$run")" = queued ] && attended "$run" && [ "$_waiter" = "$me" ] || exit 0
      # Who was killed, or lost its box, is not left behind: it would stand in the way of those after it.
      revive_queue "${run%/*/*}" "${0%/*}" "$env_file"
      may_begin "$run"
      case $? in
        0) claim "$run" ;;
        1) return 1 ;;
        *) leave_queue "$run" "$(cat "$run/queue")" && exit 0 ;;
      esac
    } 7>>"${run%/*/*/*}/queue.lock"
  }

  # A session named as the run, or where another repository's has that name, longer: a window onto it.
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
