# shellcheck shell=bash
# runs: one folder for each training command that was begun; never two for the same work by accident.

# The work: commit, command, environment. Started once, whoever asks, however often.
find_work() {
  [ -n "$WORK" ] && return
  inputs_python
  WORK=$(printf '%s\0' "$REPO_COMMIT" "$TRAIN_COMMAND" "$INPUTS" "${ENV_NAMES[@]-}" "${ENV_VALUES[@]-}" | digest)
}

# The newest run of this work, if there is one.
run_of() {
  local dir newest=
  for dir in "$RUNS"/*/; do
    if [ -f "$dir/work" ] && [ "$(<"$dir/work")" = "$1" ]; then
      if [ -z "$newest" ] || [ "$dir" -nt "$newest" ]; then newest=${dir%/}; fi
    fi
  done
  [ -n "$newest" ] && printf '%s\n' "$newest"
}

# A folder of its own, whole or not at all.
new_run() {
  local number=1 tmp
  mkdir -p "$RUNS"
  while [ -e "$RUNS/$TRAIN_SESSION-$number" ]; do number=$((number + 1)); done
  RUN_DIR=$RUNS/$TRAIN_SESSION-$number
  tmp=$RUNS/.new.$BASHPID
  rm -rf -- "$tmp"
  mkdir "$tmp"
  printf '%s\n' "$1" >"$tmp/work"
  printf '%s\n' "$REPO_COMMIT" >"$tmp/commit"
  printf '%s\n' "$REPO_DIR" >"$tmp/dir"
  printf '%s\n' "$VENV_DIR" >"$tmp/venv"
  printf '%s\n' "$(absolute_command)" >"$tmp/command"
  session_name >"$tmp/session"
  date +%s >"$tmp/started"
  mv -T "$tmp" "$RUN_DIR"
}

# `python` is the environment's, by its absolute path: no PATH decides.
absolute_command() {
  case $TRAIN_COMMAND in
    'python '* | 'python3 '*) printf '%s %s\n' "$VENV_DIR/bin/python" "${TRAIN_COMMAND#* }" ;;
    *) printf '%s\n' "$TRAIN_COMMAND" ;;
  esac
}

# A server of our own, apart from the provider's tmux and the person's settings.
our_tmux() { env -u TMUX tmux -u -L boxstrap -f /dev/null "$@" 3>&- 9>&-; }

# The profile's name for the session; where a live one has it, another repository's, ours is longer.
session_name() {
  if have tmux && our_tmux list-panes -t "=$TRAIN_SESSION" -F '#{pane_dead}' 2>/dev/null | grep -qx 0; then
    printf '%s-%s\n' "$TRAIN_SESSION" "$REPO_KEY" | tr -c 'A-Za-z0-9_\n-' '-'
  else
    printf '%s\n' "$TRAIN_SESSION"
  fi
}

# In tmux where it is, else in a session of the kernel's own: same log, same exit code.
begin_run() {
  local dir=$1 session
  session=$(<"$dir/session")
  if have tmux; then
    our_tmux kill-session -t "=$session" 2>/dev/null || :
    our_tmux new-session -d -x 200 -y 50 -s "$session" -c "$(<"$dir/dir")" \
      bash "$BOX_HOME/box/runner.sh" "$dir" "$ENV_FILE" || fail no-tmux 'tmux would not start a session'
    our_tmux set-option -t "=$session:" remain-on-exit on 2>/dev/null || :
  else
    setsid bash "$BOX_HOME/box/runner.sh" "$dir" "$ENV_FILE" </dev/null >/dev/null 2>&1 3>&- 9>&- &
  fi
  await_begin "$dir"
}

await_begin() {
  local until=$((SECONDS + 10))
  until [ -f "$1/pid" ]; do
    [ "$SECONDS" -lt "$until" ] || fail run-not-begun "the run in $1 did not begin within 10 seconds"
    sleep 0.02
  done
}

# Ends the live run, and waits for its runner too: until then it has its session.
stop_alive_run() {
  local name dir runner until
  name=$(alive_run "$RUNS") || return 0
  dir=$RUNS/$name
  runner=$(sed -n 1p "$dir/pid")
  kill -TERM "${runner%% *}" 2>/dev/null || :
  until=$((SECONDS + 15))
  while alive "$runner" && [ "$SECONDS" -lt "$until" ]; do sleep 0.05; done
  [ "$(run_state "$dir")" != running ] || kill -KILL "-$(sed -n '2s/ .*//p' "$dir/pid")" 2>/dev/null || :
}
