#!/usr/bin/env bash
# waiter: waits for the turn of a run of the queue, and then is its runner.
# usage: bash waiter.sh RUN_DIR ENV_FILE
# shellcheck disable=SC2154,SC2317 # the library sets it, and calls it
{
  # library: process run_state queue

  run=$1 env_file=$2 me=$(identity $$)

  detached() { setsid "$@"; }

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

  trap : HUP
  attended "$run" || note || exit 1
  until take_turn; do sleep 1; done
  exec bash "${0%/*}/runner.sh" "$run" "$env_file"
}
