# shellcheck shell=bash disable=SC2034 # WHY and INPUTS are read elsewhere
# train: the profile's command, started once for the same files, command and environment.

# Uses the run's own name for the work: an earlier version and the minimal edition name it differently.
inputs_train() {
  find_work
  INPUTS=$WORK
  is_line "$STAMP" "$WORK" || # full
    ! find_run_of "$WORK" || read -r INPUTS <"$RUN_OF/work"
}

check_train() {
  find_work
  find_run_of "$WORK" && ! in_state "$RUN_OF" waiting || return
  { [ -z "${RESUME-}" ] || [ -z "$(died_runs)" ]; } || return # full
  is_queue_attended || return # full
  # Uploads that were just restarted may take a moment, or end right away: no reason for a setup to fail.
  [ -e "${SETUP_DIR:-/nonexistent}/uploads" ] || ! has_idle_uploads || return # full
  has_session "$RUN_OF" # full
}

# is_of_this_work RUN
is_of_this_work() {
  find_work
  find_run_of "$WORK" && [ "$RUN_OF" = "$1" ]
}

apply_train() {
  find_work
  [ -z "${RESUME-}" ] || resume_died # full
  revive_all # full
  revive_uploads # full
  [ -z "$RESTART" ] || [ -n "$RUN_ID" ] || stop_alive_work # full
  if [ -n "$RESTART" ] || ! find_run_of "$WORK"; then
    new_run "$WORK"
  # One that was created but never started (the power failed) is started now. It cannot have run before.
  elif RUN_DIR=$RUN_OF && ! in_state "$RUN_DIR" waiting; then
    has_session "$RUN_DIR" || new_session "$RUN_DIR" window.sh "$RUN_DIR" || # full
      fail no-tmux 'tmux would not start a session' # full
    return 0
  fi
  have tmux || caution no-tmux 'tmux is not here: the run is detached all the same, but it cannot be attached to'
  start_run "$RUN_DIR"
  # Training need not wait for this.
  made_of >"$RUN_DIR/made_of"
}
