# shellcheck shell=bash disable=SC2034 # WHY and INPUTS are read elsewhere
# train: the profile's command, started once for the same files, command and environment.

inputs_train() { find_work && INPUTS=$WORK; }

check_train() {
  find_work
  find_run_of "$WORK" && ! in_state "$RUN_OF" waiting || return
  { [ -z "${RESUME-}" ] || [ -z "$(died_runs)" ]; } || return
  is_queue_attended || return
  # Uploads that were just restarted may take a moment, or end right away: no reason for a setup to fail.
  [ -e "${SETUP_DIR:-/nonexistent}/uploads" ] || ! has_idle_uploads || return
  has_session "$RUN_OF"
}

# is_of_this_work RUN
is_of_this_work() {
  find_work
  find_run_of "$WORK" && [ "$RUN_OF" = "$1" ]
}

apply_train() {
  find_work
  [ -z "${RESUME-}" ] || resume_died
  revive_uploads
  [ -z "$RESTART" ] || [ -n "$RUN_ID" ] || stop_alive_work
  if [ -n "$RESTART" ] || ! find_run_of "$WORK"; then
    new_run "$WORK"
  # One that was created but never started (the power failed) is started now. It cannot have run before.
  elif RUN_DIR=$RUN_OF && ! in_state "$RUN_DIR" waiting; then
    revive_all
    has_session "$RUN_DIR" || new_session "$RUN_DIR" runs.window "$RUN_DIR" ||
      fail no-tmux 'tmux would not start a session'
    return 0
  fi
  have tmux || caution no-tmux 'tmux is not here: the run is detached all the same, but it cannot be attached to'
  start_run "$RUN_DIR"
  # Training need not wait for this.
  made_of >"$RUN_DIR/made_of"
}
