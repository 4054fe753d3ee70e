# shellcheck shell=bash disable=SC2034 # WHY and INPUTS are read elsewhere
# train: the profile's command, begun once for the same commit, command and environment.

# As its run calls the work: one of an earlier version or of the minimal edition has another word for it.
inputs_train() {
  local dir
  find_work
  INPUTS=$WORK
  is_line "$STAMP" "$WORK" || # full
    ! dir=$(run_of "$WORK") || read -r INPUTS <"$dir/work"
}

check_train() {
  local dir
  find_work
  dir=$(run_of "$WORK") && ! in_state "$dir" waiting || return
  { [ -z "${RESUME-}" ] || [ -z "$(died_runs)" ]; } || return # full
  is_queue_attended || return # full
  # Begun again, who puts results there may take a moment, or end at once: no reason for a setup to fail.
  [ -e "${SETUP_DIR:-/nonexistent}/uploads" ] || [ -z "$(idle_uploads)" ] || return # full
  has_session "$dir" # full
}

# is_of_this_work RUN
is_of_this_work() {
  find_work
  [ "$(run_of "$WORK")" = "$1" ]
}

apply_train() {
  find_work
  [ -z "${RESUME-}" ] || resume_died # full
  revive_all # full
  revive_uploads # full
  # Made, but never begun (the power went): it is begun now. It cannot have run before.
  [ -z "$RESTART" ] || [ -n "$RUN_ID" ] || stop_alive_work # full
  if [ -n "$RESTART" ] || ! RUN_DIR=$(run_of "$WORK"); then
    new_run "$WORK"
  elif ! in_state "$RUN_DIR" waiting; then
    has_session "$RUN_DIR" || new_session "$RUN_DIR" window.sh "$RUN_DIR" || # full
      fail no-tmux 'tmux would not start a session' # full
    return 0
  fi
  have tmux || caution no-tmux 'tmux is not here: the run is detached all the same, but it cannot be attached to'
  begin_run "$RUN_DIR"
  # Training need not wait for it.
  made_of >"$RUN_DIR/made_of"
}
