# shellcheck shell=bash
# runs: one folder for each training command that was started; never two for the same work by accident.

# Whether any run of boxstrap's is alive on the box, of any repository: what it uses is no fault of the box.
any_alive_run() {
  local dir
  for dir in "$BOX_HOME"/runs/*/*/; do
    if in_state "$dir" running; then return; fi
  done
  return 1
}

# is_newer RUN OTHER: whether it was started later; OTHER may be empty. A folder's own time is its last write.
is_newer() {
  [ -z "$2" ] || [ "$1/started" -nt "$2/started" ]
}

# is_interrupted RUN: whether it ended because its box was to be taken away: it goes on if the box is there again.
is_interrupted() { grep -qs '^interrupted ' "$1/ended"; }

# Whether the newest run of this repository ended with the box, and not on its own.
last_run_died() {
  local dir newest=
  for dir in "$RUNS"/*/; do
    # A run in a tree beside was not started by a setup.
    ! grep -qs '@[0-9]*$' "${dir}dir" || continue
    if [ -d "$dir" ] && is_newer "$dir" "$newest"; then newest=${dir%/}; fi
  done
  [ -n "$newest" ] || return
  in_state "$newest" died ||
    is_interrupted "$newest"
}

# new_run WORK: makes a run's folder, whole or not at all, and sets RUN_DIR to it.
new_run() {
  local number=1 tmp gpu count
  # One that was made under this id, but never started: the power failed.
  [ -z "$RUN_ID" ] || ! RUN_DIR=$(run_with_id "$RUNS" "$RUN_ID") || rm -rf -- "$RUN_DIR"
  # CUDA hides all GPUs from a number on that isn't there, and a program then silently computes without them.
  [ -z "$RUN_GPUS" ] || count=$(sed -n 's/^gpus //p' "$BOX_HOME/gpu.said" 2>/dev/null) || :
  for gpu in ${RUN_GPUS//,/ }; do [ -z "$count" ] || [ "$gpu" -lt "$count" ] || fail gpu-not-there "this box has no GPU$([ "$count" = 0 ] || printf ' %s: they are 0 to %s' "$gpu" $((count - 1)))"; done
  while [ -e "$RUNS/$TRAIN_SESSION-$number" ]; do number=$((number + 1)); done
  RUN_DIR=$RUNS/$TRAIN_SESSION-$number
  tmp=$RUNS/.new.$BASHPID
  mkdir -p "$tmp"
  printf '%s\n' "$1" >"$tmp/work"
  printf '%s\n' "$REPO_COMMIT" >"$tmp/commit"
  printf '%s\n' "$REPO_SNAPSHOT" >"$tmp/snapshot"
  printf '%s\n' "$REPO_TREE" >"$tmp/tree"
  printf '%s\n' "$REPO_DIR" >"$tmp/dir"
  printf '%s\n' "$DATA_CONTENT" >"$tmp/data"
  printf '%s\n' "$VENV_DIR" >"$tmp/venv"
  absolute_command >"$tmp/command"
  [ ! -e "$NOTES/repo.edited" ] || cp "$NOTES/repo.edited" "$tmp/edited"
  [ -z "$TRAIN_RESUME" ] || absolute_command "$TRAIN_RESUME" >"$tmp/resume"
  [ -z "$TRAIN_ON_NOTICE" ] || absolute_command "$TRAIN_ON_NOTICE" >"$tmp/on_notice"
  [ -z "${QUEUE-}" ] || join_queue "$tmp"
  printf '%s\n' "$TRAIN_SESSION" >"$tmp/session"
  printf '%s\n' "$TRAIN_GRACE" >"$tmp/grace"
  [ "${#METRICS[@]}" = 0 ] || printf '%s\n' "${METRICS[@]}" >"$tmp/metrics"
  [ -z "$RUN_ID" ] || printf '%s\n' "$RUN_ID" >"$tmp/id"
  [ -z "$RUN_GPUS" ] || printf '%s\n' "$RUN_GPUS" >"$tmp/gpus"
  [ -z "$RUN_VARIABLES" ] || printf '%s\n' "$RUN_VARIABLES" >"$tmp/variables"
  printf '%s\n' "$((LOG_MAX_MIB * 1024 * 1024))" >"$tmp/log_max"
  [ -z "${RESULTS[*]-}" ] || printf '%s\n' "${RESULTS[@]}" >"$tmp/results"
  [ -z "${RESULTS_TO[*]-}" ] || printf '%s\n' "${RESULTS_TO[@]}" >"$tmp/results_to"
  [ -z "${NOTIFY[*]-}" ] || printf '%s\n' "${NOTIFY[@]}" >"$tmp/notify"
  take_nodes "$tmp"
  printf '%(%s)T\n' -1 >"$tmp/started"
  mv -T "$tmp" "$RUN_DIR"
}

# take_nodes RUN: what onbox/nodes/check.py wrote for this run, if it is one of several nodes. It never begins alone.
take_nodes() {
  [ -n "$NODES_ID$TRAIN_NODES" ] || return 0
  if [ -n "$NODES_ID" ]; then
    mv -T "$BOX_HOME/nodes/$NODES_ID" "$1/nodes"
    # Where not all results are wanted, those of node 0 are.
    [ -n "$RESULTS_OF_ALL" ] || is_line "$1/nodes/rank" 0 || rm -f "$1/results" "$1/results_to"
  else
    mkdir -p "$1/nodes"
    onbox nodes.check engine "$TRAIN_NODES" >"$1/nodes/env" || fail nodes-alone "the other ${TRAIN_NODES-} nodes are not begun with it"
  fi
}

# Whether the run of RUN_ID was started, or is just being started; sets RUN_DIR.
is_started() {
  [ -n "$RUN_ID" ] && RUN_DIR=$(run_with_id "$RUNS" "$RUN_ID") &&
    { ! in_state "$RUN_DIR" waiting || { has_runner "$RUN_DIR" && await_begin "$RUN_DIR"; }; }
}

# Makes the folders of `results` before training starts, but none that a link puts outside the tree.
make_results() {
  local path tree
  [ "${#RESULTS[@]}" -gt 0 ] || return 0
  tree=$(realpath -- "$REPO_DIR")
  for path in ${RESULTS[@]+"${RESULTS[@]}"}; do
    # A path that does not end in a slash may be a file.
    case $path in */*) path=${path%/*} ;; *) continue ;; esac
    case $(realpath -m -- "$tree/$path") in "$tree"/*) mkdir -p -- "$tree/$path" || : ;; esac
  done
}

# `python` becomes the environment's, by its absolute path: PATH does not matter.
absolute_command() {
  set -- "${1-$TRAIN_COMMAND}"
  case $1 in
    'python '* | 'python3 '*) printf '%s %s\n' "$VENV_DIR/bin/python" "${1#* }" ;;
    *) printf '%s\n' "$1" ;;
  esac
}

# A tmux server of our own, apart from the provider's and from the user's settings. It shows its environment to
# anyone who asks, so secrets that rc files set are kept out of it: a run reads them from their file.
our_tmux() { (without_secrets tmux -u -L boxstrap -f /dev/null "$@"); }

# Becomes the program: a shell that waited for it would hold our lock and our link.
without_secrets() {
  local pair hidden=(-u TMUX)
  if [ -f "$BOX_HOME/secrets" ]; then
    while IFS= read -r -d '' pair; do hidden+=(-u "${pair%%=*}"); done <"$BOX_HOME/secrets"
  fi
  exec env "${hidden[@]}" "$@" 3>&- 9>&-
}

# Sets SESSION to the profile's name for the session; if a live session of another run has that name, to a longer one.
find_session_name() {
  local number=1 more=''
  SESSION=$TRAIN_SESSION
  while is_line <(our_tmux list-panes -t "=$SESSION" -F '#{pane_dead}' 2>/dev/null) 0; do
    SESSION=$TRAIN_SESSION-$REPO_KEY$more
    SESSION=${SESSION//[!A-Za-z0-9_-]/-}
    number=$((number + 1)) more=-$number
  done
}

# keep_results WORD RUN: keeps the results of earlier runs that are not home before this one begins; see
# keep_results.py. If it can't, the run is not started, and the reason is in the log, for this machine to put in words.
keep_results() {
  local refused rc=0
  [ -z "$OVERWRITE" ] || set -- give-up "$2"
  refused=$(run_keeper "$@" ${RESUME:+inf}) || rc=$?
  [ -z "${TO_KEEPER-}" ] || exec {TO_KEEPER}>&- {OF_KEEPER}<&-
  [ "$rc" -ne 0 ] || return 0
  rm -rf -- "$2"
  printf 'results-unsafe\n' >"$STEP_CODE"
  printf '%s\n' "$refused" >&2
  exit 9
}

run_keeper() {
  ! ask_keeper "$@" || return "$KEEPER_CODE"
  onbox results.keep_results "$@"
}

# start_keeper: for a new run in REPO_DIR: what earlier results it would lose is copied while its files are placed.
start_keeper() {
  local python=$BOX_HOME/agent/bin/python
  [ -z "$OVERWRITE${QUEUE-}" ] && [ -x "$python" ] && [ -f "$ONBOX" ] || return 0
  { coproc KEEPER { exec "$python" -I -S -B "$ONBOX" results.keep_results ahead "$RUNS/.new" "$REPO_DIR" ${RESULTS[@]+"${RESULTS[@]}"} 6>&- 9>&-; }; } 2>/dev/null
  # Bash closes a coprocess's own descriptors in subshells.
  exec {TO_KEEPER}>&"${KEEPER[1]}" {OF_KEEPER}<&"${KEEPER[0]}"
}

# ask_keeper WORD RUN [SECONDS]: has it done by that process, if there is one: prints what it says, and sets KEEPER_CODE.
# 1 if it ended without an answer, in whatever way: then another one is asked.
ask_keeper() {
  local line said=''
  [ -n "${TO_KEEPER-}" ] || return
  (IFS=$'\t' && printf '%s\n' "$*") 2>/dev/null 1>&"$TO_KEEPER" || return
  exec {TO_KEEPER}>&-
  while IFS= read -r line <&"$OF_KEEPER"; do
    case $line in over\ *) KEEPER_CODE=${line#* } && printf %s "$said" && return ;; esac
    said+=$line$'\n'
  done
  return 1
}

# Whether a training begins, and must not because results of earlier runs would be lost: known before anything is done.
would_lose_results() {
  case " ${STEPS[*]} " in *' train '*) [ -z "$OVERWRITE$ONLY" ] ;; *) return 1 ;; esac || return
  [ -f "$ONBOX" ] || return
  [ -n "$RESTART$RUN_ID" ] || { ! alive_in "$BOX_HOME" "$REPO_KEY" "$REPO_DIR" && find_work && ! find_run_of "$WORK"; } >/dev/null || return
  run_keeper look "$RUNS/.new" "$REPO_DIR" ${RESULTS[@]+"${RESULTS[@]}"} >"$SETUP_DIR/logs/train.log" 2>&1
  [ $? = 9 ]
}

# In tmux if it is installed, else in a session of the kernel's: same log, same exit code.
start_run() {
  make_results
  revive_uploads
  # A queued run is started by its waiter, which also makes its session.
  if [ -f "$1/queue" ]; then
    keep_results room "$1"
    revive_all
    ! in_state "$1" queued || attended "$1" || fail run-not-begun "no process could be started that waits for the turn of $1"
    return 0
  fi
  # A setup that was killed may have started it a moment ago.
  ! has_runner "$1" || { await_begin "$1" && return; }
  keep_results begin "$1"
  if have tmux; then
    new_session "$1" runs.runner "$1" "$ENV_FILE" || fail no-tmux 'tmux would not start a session'
  else
    without_secrets setsid "$(own_python)" -I -S -B "$ONBOX" runs.runner "$1" "$ENV_FILE" </dev/null >/dev/null 2>&1 &
  fi
  await_begin "$1"
  # Only now: what waits for its GPUs waits for it.
  revive_all
}

# join_queue RUN: QUEUE says what it waits for. Reserves room so that it can be taken out when the disk is full.
join_queue() {
  case $QUEUE in
    after*/*) [ -d "$BOX_HOME/runs/${QUEUE#* }" ] ;;
    after*) [ -d "$RUNS/${QUEUE#* }" ] ;;
  esac || fail no-run-before "there is no run ${QUEUE#* } here that this one could wait for"
  printf '%s\n' "$QUEUE" >"$1/queue"
  echo >"$1/exit.new"
}

# is_queue_attended, revive_all: start waiters again after a restart of the box, or if they were killed.
is_queue_attended() {
  local dir
  for dir in "$BOX_HOME"/runs/*/*/queue; do
    if in_state "${dir%/queue}" queued && ! attended "${dir%/queue}"; then return 1; fi
  done
}

revive_all() {
  is_queue_attended || (without_secrets "$BOX_HOME/agent/bin/python" -I -S -B "$ONBOX" run_queue revive "$BOX_HOME" "$ENV_FILE") || :
}

# Sets IDLE_UPLOADS to the runs whose results are not all in their bucket while nobody uploads them: the box was
# restarted, or the bucket could not be reached for a day.
find_idle_uploads() {
  local note dir
  IDLE_UPLOADS=()
  for note in "$BOX_HOME"/runs/*/*/results_to; do
    dir=${note%/*}
    # The uploader takes the lock before it notes anything.
    if [ -f "$dir/uploaded" ] && ! grep -q '^whole ' "$dir/uploaded" && flock -n "$dir/upload.lock" true; then
      IDLE_UPLOADS+=("$dir")
    fi
  done
}

has_idle_uploads() { find_idle_uploads && [ "${#IDLE_UPLOADS[@]}" -gt 0 ]; }

revive_uploads() {
  local dir
  [ ! -d "${SETUP_DIR-}" ] || : >"$SETUP_DIR/uploads"
  find_idle_uploads
  for dir in ${IDLE_UPLOADS[@]+"${IDLE_UPLOADS[@]}"}; do
    without_secrets setsid "$BOX_HOME/agent/bin/python" -I -B "$ONBOX" bucket.upload_results "$dir" </dev/null >/dev/null 2>&1 &
  done
}

# new_session RUN_DIR PROGRAM ARGUMENT...: a session in which one of our programs runs.
new_session() {
  local dir=$1 pause dead
  # A server whose last session was just ended is shutting down, and accepts nothing more; and another setup of this
  # account may have taken the name since it was checked.
  for pause in 0.1 0.5 1 0; do
    find_session_name
    # A dead session of that name, if find_session_name saw one, goes by the same call: without any, the server would end.
    dead=()
    [ -z "$TEXT" ] || dead=(kill-session -t "=$SESSION" \;)
    write_if_changed "$dir/session" 644 "$SESSION"$'\n'
    ! our_tmux ${dead[@]+"${dead[@]}"} new-session -d -x 200 -y 50 -s "$SESSION" -c "$(<"$dir/dir")" "$(own_python)" -I -S -B "$ONBOX" "${@:2}" \; \
      set-option -t "=$SESSION:" remain-on-exit on || break
    [ "$pause" != 0 ] || return
    sleep "$pause"
    ! has_runner "$dir" || break
  done
}

# has_runner RUN_DIR: whether its runner is at work, which may not have claimed it yet.
has_runner() {
  local file words=()
  for file in /proc/[0-9]*/cmdline; do
    { mapfile -d '' -t words <"$file"; } 2>/dev/null || continue
    case "${words[*]:5:2}" in 'runs.runner '"$1") return 0 ;; esac
  done
  return 1
}

# A session is only a window onto a run: if somebody ended it, or tmux itself died, the run continues. A queued run has
# no session yet between getting its turn and starting its work.
has_session() {
  ! in_state "$1" running || [ -z "$_child" ] || ! have tmux || our_tmux has-session -t "=$(<"$1/session")" 2>/dev/null
}

await_begin() {
  local until=$((SECONDS + 10))
  until [ -f "$1/pid" ]; do
    [ "$SECONDS" -lt "$until" ] || fail run-not-begun "the run in $1 did not start within 10 seconds"
    sleep 0.01
  done
}

# Ends the live run as a whole, and also waits for its runner: until then it has its session.
stop_alive_run() {
  local dir left
  dir=$(alive_in "$BOX_HOME" "$REPO_KEY" "$REPO_DIR") || return 0
  left=$(onbox run_processes stop "$dir" | sed -n 's/^left\t[^\t]*\t//p')
  [ -z "$left" ] || write_event setup warn code=run-left "count=$(wc -l <<<"$left")" "pid=${left%%$'\t'*}"
}

# The same work may be alive in a tree beside.
stop_alive_work() {
  find_run_of "$WORK" && in_state "$RUN_OF" running || return 0
  onbox run_processes stop "$RUN_OF" >/dev/null
}
