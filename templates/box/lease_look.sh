#!/usr/bin/env bash
# lease_look: reports to the lease's monitor what exists only on this box, as `made` does.
# usage: bash lease_look.sh BOX_HOME | bash lease_look.sh BOX_HOME empty-queue
# shellcheck disable=SC2034,SC2154,SC2317 # the library reads, sets and calls it
{
  # library: process run_state queue base repository git trees queries/holds

  box_home=$1

  # Reports each repository's folder that somebody moved: nobody looks at what is in it.
  look_at_folders() {
    local key
    for key in "$box_home"/steps/*/; do
      key=${key%/}
      if [ -e "$key/repo.key" ] || [ ! -e "$key/repo.placed" ] || ! has_folder "$box_home" "${key##*/}"; then continue; fi
      [ -e "$_folder" ] || [ -L "$_folder" ] || answer gone "${_folder##*/}"
    done
  }

  # box_home is set already.
  find_home() { :; }

  if [ "${2-}" = empty-queue ]; then
    empty_queue "$box_home" stop
    exit
  fi
  look_at_folders
  # library: queries/made
  exit
}
