# shellcheck shell=bash
# agent: uv, and a small environment of our own (nvidia-ml-py, psutil) that no user's package can break.

inputs_agent() { inputs v1 "${AGENT_PACKAGES[@]}"; }

check_agent() { known_uv && [ -x "$BOX_HOME/agent/bin/python" ] && [ -f "$BOX_HOME/agent/complete" ]; }

apply_agent() {
  rm -f "$BOX_HOME/agent/complete"
  find_uv || fetch_uv
  printf '%s\n' "$UV" | write_file "$BOX_HOME/uv" 600
  read_indexes
  with_retries run_uv venv --quiet --allow-existing --python-preference system --no-project "$BOX_HOME/agent"
  with_retries run_uv pip install --quiet --python "$BOX_HOME/agent/bin/python" "${AGENT_PACKAGES[@]}"
  : >"$BOX_HOME/agent/complete"
}
