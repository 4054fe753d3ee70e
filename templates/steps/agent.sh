# shellcheck shell=bash
# agent: uv, and a small environment of our own (nvidia-ml-py, psutil) that no user's package can break.

inputs_agent() { inputs v1 "${AGENT_PACKAGES[@]}"; }

check_agent() {
  known_uv && [ -x "$BOX_HOME/agent/bin/python" ] && [ -f "$BOX_HOME/agent/complete" ] &&
    all_there "$BOX_HOME/agent" "$BOX_HOME/agent/complete"
}

# Small, and made anew each time: what a kill left half-written looks whole to uv.
apply_agent() {
  rm -rf -- "$BOX_HOME/agent"
  find_uv || fetch_uv
  printf '%s\n' "$UV" | write_file "$BOX_HOME/uv" 600
  read_indexes
  with_retries run_uv venv --quiet --python-preference system --no-project "$BOX_HOME/agent"
  with_retries run_uv pip install --quiet --python "$BOX_HOME/agent/bin/python" "${AGENT_PACKAGES[@]}"
  packages_in "$BOX_HOME/agent" | write_file "$BOX_HOME/agent/complete" 600
}
