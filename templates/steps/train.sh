# shellcheck shell=bash disable=SC2034 # RUN_WHY and INPUTS are read elsewhere
# train: the profile's command, started once for the same files, command and environment.

inputs_train() { find_work && INPUTS=$WORK; }

check_train() {
  find_work
  read -r RUN_WHY < <(run_request | onbox runs.start check) && [ -n "$RUN_WHY" ]
}

# is_of_this_work RUN
is_of_this_work() {
  find_work
  find_run_of "$WORK" && [ "$RUN_OF" = "$1" ]
}

apply_train() {
  : >"$SETUP_DIR/uploads"
  find_work
  if [ -n "$RESTART" ] || ! find_run_of "$WORK"; then
    have tmux || caution no-tmux 'tmux is not here: the run is detached all the same, but it cannot be attached to'
  fi
  start_run
  # Training need not wait for this.
  [ -f "$RUN_DIR/made_of" ] || made_of >"$RUN_DIR/made_of"
}
