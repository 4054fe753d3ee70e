# shellcheck shell=bash disable=SC2034,SC2153 # set here, read elsewhere; the capitals are rendered
# compact: the library's steps in the foreground, one after another, for doors that do not take the full script.

main() {
  local lacks
  HOME=${HOME:-$(cd ~ && pwd)} && export HOME
  begin_script
  # Events of a step are read in this process, not in a subshell.
  shopt -s lastpipe
  SETUP_DIR='' GATHERED=() PRIVATE=$(mktemp -d)
  trap 'rm -rf "$PRIVATE"' EXIT
  lacks=$(lacks | cut -f3)
  [ -z "$lacks" ] || refuse "$lacks"
  ALIVE_RUN=$(alive_in "$BOX_HOME" "$REPO_KEY" "$REPO_DIR") || :
  [ "$TRAIN_AT_BOOT" != restart ] || ! last_run_died || RESTART=yes
  if (all_right) >"$PRIVATE/said" 2>&1; then
    printf 'boxstrap: nothing to do, the box is as the profile says\n'
  else
    gather
    # If git has to be installed first, that comes before the check whether the repository can be read.
    ! have git || gain_access
    set_up
  fi
  closing_words
}

# Whether nothing is to be done; then nothing is written. Called in a subshell, since it remembers what it finds.
all_right() {
  local name
  for name in "${STEPS[@]}"; do
    find_reason "$name"
    [ -z "$WHY" ] || left_alone "$name" || return 1
  done
}

set_up() {
  local name taken=0
  open_setup "$(date -u +%Y%m%d-%H%M%S)-d$RANDOM"
  take_lock 60 || taken=$?
  case $taken in
    1) end_early 8 busy 'another setup is at work on this box' ;;
    2) end_early 0 same 'this very setup is at work on this box already' ;;
  esac
  hand_over_secrets
  prepare_box
  ALIVE_RUN=$(alive_in "$BOX_HOME" "$REPO_KEY" "$REPO_DIR") || :
  for name in "${STEPS[@]}"; do
    [ "$name" != repo ] || gain_access
    run_step "$name"
    [ "$SETUP_EXIT" -eq 0 ] || break
  done
  end_setup "$SETUP_EXIT"
  [ "$SETUP_EXIT" -eq 0 ] || end_failed "$SETUP_EXIT" "$SETUP_DIR/logs/$name.log"
}

# end_early EXIT CODE SENTENCE
end_early() {
  end_setup "$1" "$2"
  printf 'boxstrap: %s\n' "$3" >&2
  exit "$1"
}

# run_step STEP: runs one step and prints its events as lines. A terminal that is gone ends nothing.
run_step() {
  local step event rest words word rc=137
  (one_step "$1") 3>&1 >"$SETUP_DIR/logs/$1.log" 2>&1 </dev/null |
    while [ "$rc" = 137 ] && read -r step event rest; do
      read -ra words <<<"$rest"
      write_event "$step" "$event" "${words[@]}"
      word=${rest%% *}
      [ "$event" = progress ] || printf '%s %s %s\n' "$step" "$event" "${word#*=}" || :
      case $event in ok | skip) rc=0 ;; fail) rc=${rest##*rc=} ;; esac
    done
  [ "$rc" -ne 137 ] || write_event "$1" fail code=killed rc=137
  [ "$rc" -eq 0 ] || SETUP_EXIT=$(exit_of "$1" "$rc")
}

closing_words() {
  local dir
  [ -n "$TRAIN_COMMAND" ] || return 0
  find_work
  find_run_of "$WORK" || :
  dir=${ALIVE_RUN:-$RUN_OF}
  show_beginning "$dir"
  is_of_this_work "$dir" || not_started
}
