# shellcheck shell=bash
# agent: uv, and a small environment of boxstrap's own (nvidia-ml-py, psutil) that no user's package can break.

inputs_agent() { inputs v1 "${AGENT_PACKAGES[@]}"; }

check_agent() {
  known_uv && [ -x "$BOX_HOME/agent/bin/python" ] && [ -f "$BOX_HOME/agent/complete" ] &&
    (cd "$BOX_HOME/agent" && exec xargs -d '\n' stat -c '' -- <complete) >/dev/null 2>&1
}

# Small, so it is rebuilt each time: uv would accept a copy that a kill left half-written.
apply_agent() {
  rm -rf -- "$BOX_HOME/agent"
  follow_the_box_alone
  find_uv || fetch_uv
  write_file "$BOX_HOME/uv" 600 "$UV"$'\n'"$UV_CERTS"$'\n'
  read_indexes
  with_retries run_uv venv --quiet --python-preference system --no-project "$BOX_HOME/agent"
  # Into its folder, with the interpreter that it was made from: uv has already queried that one.
  with_retries run_uv pip install --quiet --python "$(readlink "$BOX_HOME/agent/bin/python")" \
    --target "$BOX_HOME"/agent/lib/python*/site-packages "${AGENT_PACKAGES[@]}"
  (cd "$BOX_HOME/agent" && exec find lib/python*/site-packages -name __pycache__ -prune -o -type d -print) |
    write_file "$BOX_HOME/agent/complete" 600
  # Else whoever asks for runs compiles it each time. Nothing waits for it.
  setsid nice "$BOX_HOME/agent/bin/python" -I -S -m compileall -q "$PROGRAMS/onbox" </dev/null >/dev/null 2>&1 3>&- 9>&- &
}

# The box decides where boxstrap's own tools come from, no repository: neither its files (a door may be opened in its
# folder) nor its profile's `env`, which the box's shells have from the second setup on.
follow_the_box_alone() {
  local name
  cd /
  for name in "${ENV_NAMES[@]}"; do
    case $name in UV_* | PIP_*) unset "$name" ;; esac
  done
}
