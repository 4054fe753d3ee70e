#!/usr/bin/env bash
# lease_look: for the lease's monitor: what of this box is nowhere else, as `made` tells it, and what goes on there.
# usage: bash lease_look.sh BOX_HOME | bash lease_look.sh BOX_HOME empty-queue
# shellcheck disable=SC2034,SC2154,SC2317 # the library reads, sets and calls it
{
  # library: process run_state queue base repository git trees queries/holds

  box_home=$1

  # A run goes on: it lives, waits for its turn, or left processes behind.
  look_at_runs() {
    local run
    for run in "$box_home"/runs/*/*/; do
      run=${run%/}
      case $(run_state "$run") in
        running | queued) tell run "${run##*/}" ;;
        *) [ ! -f "$run/left" ] || [ "$(left_of "$run")" = 0 ] || tell run "${run##*/}" ;;
      esac
    done
  }

  # A folder that somebody moved: what is in it nobody looks at.
  look_at_folders() {
    local key
    for key in "$box_home"/steps/*/; do
      key=${key%/}
      if [ -e "$key/repo.key" ] || [ ! -e "$key/repo.placed" ] || ! has_folder "$box_home" "${key##*/}"; then continue; fi
      [ -e "$_folder" ] || [ -L "$_folder" ] || tell gone "${_folder##*/}"
    done
  }

  # Those that wait come first: else one would begin where another was ended.
  empty_queue() {
    local note
    for note in "$box_home"/runs/*/*/queue; do
      [ ! -f "$note" ] || take_out "${note%/queue}" stop
    done
  }

  # Where its folder lies is known here.
  find_home() { :; }

  if [ "${2-}" = empty-queue ]; then
    empty_queue
    exit
  fi
  look_at_runs
  look_at_folders
  # library: queries/made
  exit
}
