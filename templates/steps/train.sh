# shellcheck shell=bash
# train: the profile's command, begun once for the same commit, command and environment.

inputs_train() { work_id; }

check_train() {
  local dir
  dir=$(run_of "$(work_id)") && [ "$(run_state "$dir")" != waiting ]
}

apply_train() {
  local work
  work=$(work_id)
  # Made, but never begun (the power went): it is begun now. It cannot have run before.
  if [ -n "$RESTART" ] || ! RUN_DIR=$(run_of "$work"); then
    new_run "$work"
  elif [ "$(run_state "$RUN_DIR")" != waiting ]; then
    return 0
  fi
  have tmux || caution no-tmux 'tmux is not here: the run is detached all the same, but it cannot be attached to'
  begin_run "$RUN_DIR"
}
