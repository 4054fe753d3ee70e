# shellcheck shell=bash
# agent: uv, and a small environment of our own (nvidia-ml-py, psutil) that no user's package can break.

inputs_agent() { fingerprint v1 "${AGENT_PACKAGES[@]}"; }

check_agent() { find_uv && [ -x "$BOX_HOME/agent/bin/python" ] && "$BOX_HOME/agent/bin/python" -c ''; }

apply_agent() {
  find_uv || fetch_uv
  read_indexes
  with_retries run_uv venv --quiet --allow-existing --python-preference system --no-project "$BOX_HOME/agent"
  with_retries run_uv pip install --quiet --python "$BOX_HOME/agent/bin/python" "${AGENT_PACKAGES[@]}"
}
