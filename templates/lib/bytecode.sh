# shellcheck shell=bash
# bytecode: what the training will import is compiled on idle cores, beside its fetching and whatever comes next.
# Nothing waits for it, and nothing fails by it.

# compile_ahead MARK: what uv unpacks is compiled in memory; once the file MARK is there, all of it in the environment.
# It ends with whoever called, where that is gone before the mark.
compile_ahead() {
  [ -n "$TRAIN_COMMAND" ] && ! has_one_core || return 0
  local installer=$BASHPID
  setsid "$VENV_DIR/bin/python" -I -S -B "$PROGRAMS/bytecode.py" "$VENV_DIR" "$REPO_DIR" "$TRAIN_COMMAND" \
    "$WORKDIR/.boxstrap/cache/uv" "$1" "$installer" \
    </dev/null >/dev/null 2>&1 3>&- 9>&- &
  identity "$!" >"$VENV_NOTES/python.compiling" || :
}

# has_one_core: then fetching and training want it themselves. What bash reads by itself costs it least.
has_one_core() { read_text /proc/self/status && [[ $TEXT =~ Cpus_allowed_list:[[:space:]]*[0-9]+$'\n' ]]; }

# end_compiling: before the environment is changed.
end_compiling() {
  local who
  { read -r who <"$VENV_NOTES/python.compiling"; } 2>/dev/null && alive "$who" || return 0
  kill -KILL -- "-${who%% *}" 2>/dev/null || :
}
