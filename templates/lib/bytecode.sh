# shellcheck shell=bash
# bytecode: what the training will import is compiled on idle cores, beside its fetching and whatever comes next.
# Nothing waits for it, and nothing fails by it.

# compile_ahead MARK: what uv unpacks is compiled in memory; once the file MARK is there, all of it in the environment.
compile_ahead() {
  [ -n "$TRAIN_COMMAND" ] || return 0
  setsid "$VENV_DIR/bin/python" -I -S -B "$PROGRAMS/bytecode.py" "$VENV_DIR" "$REPO_DIR" "$TRAIN_COMMAND" \
    "$WORKDIR/.boxstrap/cache/uv" "$1" \
    </dev/null >/dev/null 2>&1 3>&- 9>&- &
  identity "$!" >"$VENV_NOTES/python.compiling" || :
}

# end_compiling: before the environment is changed.
end_compiling() {
  local who
  { read -r who <"$VENV_NOTES/python.compiling"; } 2>/dev/null && alive "$who" || return 0
  kill -KILL -- "-${who%% *}" 2>/dev/null || :
}
