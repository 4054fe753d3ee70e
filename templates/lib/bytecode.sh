# shellcheck shell=bash
# bytecode: compiles what the training will import, on idle cores, while packages are fetched and later steps run.
# Nothing waits for it, and nothing fails because of it.

# compile_ahead MARK: compiles what uv unpacks, in memory; once the file MARK exists, everything in the environment.
# It ends early if its caller is gone before the file exists.
compile_ahead() {
  [ -n "$TRAIN_COMMAND" ] && ! has_one_core || return 0
  local installer=$BASHPID
  setsid "$VENV_DIR/bin/python" -I -S -B "$ONBOX" python.bytecode "$VENV_DIR" "$REPO_DIR" "$TRAIN_COMMAND" \
    "$WORKDIR/.boxstrap/cache/uv" "$1" "$installer" \
    </dev/null >/dev/null 2>&1 3>&- 9>&- &
  identity "$!" >"$VENV_NOTES/python.compiling" || :
}

# has_one_core: then fetching and training need it themselves. Reading the file in bash costs the least.
has_one_core() { read_text /proc/self/status && [[ $TEXT =~ Cpus_allowed_list:[[:space:]]*[0-9]+$'\n' ]]; }

# end_compiling: called before the environment is changed.
end_compiling() {
  local who
  { read -r who <"$VENV_NOTES/python.compiling"; } 2>/dev/null && alive "$who" || return 0
  kill -KILL -- "-${who%% *}" 2>/dev/null || :
}
