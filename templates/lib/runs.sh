# shellcheck shell=bash
# runs: what a setup asks of runs, one folder each; how they are made and start: onbox/runs/start.py.

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

# Whether the run of RUN_ID was started, or is just being started; sets RUN_DIR.
is_started() {
  [ -n "$RUN_ID" ] && RUN_DIR=$(run_with_id "$RUNS" "$RUN_ID") &&
    { ! in_state "$RUN_DIR" waiting || onbox runs.start await "$RUN_DIR"; }
}

# `python` becomes the environment's, by its absolute path: PATH does not matter.
absolute_command() {
  set -- "${1-$TRAIN_COMMAND}"
  case $1 in
    'python '* | 'python3 '*) printf '%s %s\n' "$VENV_DIR/bin/python" "${1#* }" ;;
    *) printf '%s\n' "$1" ;;
  esac
}

# run_request: prints what a run is made of, NAME=VALUE each, ended by NUL; what is named twice has several lines.
run_request() {
  local list name command
  printf '%s\0' "home=$BOX_HOME" "key=$REPO_KEY" "notes=$NOTES" "setup=${SETUP_DIR-}" "restart=$RESTART" \
    "resume_all=${RESUME-}" "overwrite=$OVERWRITE" "queue=${QUEUE-}" "nodes_id=$NODES_ID" "train_nodes=$TRAIN_NODES" \
    "results_of_all=$RESULTS_OF_ALL" "work=$WORK" "commit=$REPO_COMMIT" "snapshot=$REPO_SNAPSHOT" "tree=$REPO_TREE" \
    "dir=$REPO_DIR" "data=$DATA_CONTENT" "venv=$VENV_DIR" "session=$TRAIN_SESSION" "grace=$TRAIN_GRACE" \
    "log_max=$((LOG_MAX_MIB * 1024 * 1024))" "id=$RUN_ID" "gpus=$RUN_GPUS" "variables=$RUN_VARIABLES"
  for name in command resume on_notice; do
    command=TRAIN_${name^^}
    [ -z "${!command}" ] || printf '%s\0' "$name=$(absolute_command "${!command}")"
  done
  for name in results results_to metrics notify; do
    list="${name^^}[@]"
    for command in ${!list+"${!list}"}; do printf '%s\0' "$name=$command"; done
  done
  printf 'over\0'
}

# start_starter: the program that will start a run in REPO_DIR. It loads, and copies what earlier results that run would
# lose, while its files are placed.
start_starter() {
  local words=(ahead "$RUNS" "$REPO_DIR" ${RESULTS[@]+"${RESULTS[@]}"}) python=$BOX_HOME/agent/bin/python
  [ -x "$python" ] && [ -f "$ONBOX" ] || return 0
  [ -z "$OVERWRITE${QUEUE-}" ] || words=(begin)
  { coproc STARTER { exec "$python" -I -S -B -X utf8 "$ONBOX" runs.start "${words[@]}" 6>&- 9>&-; }; } 2>/dev/null
  # Bash closes a coprocess's own descriptors in subshells.
  exec {TO_STARTER}>&"${STARTER[1]}" {OF_STARTER}<&"${STARTER[0]}"
}

# start_run: makes a run and starts it, or goes on with the one of the same work; sets RUN_DIR. 9 if results of earlier
# runs that are not home would be lost.
start_run() {
  local said=
  find_work
  if [ -n "${TO_STARTER-}" ]; then
    (run_request >&"$TO_STARTER") || :
    exec {TO_STARTER}>&-
    read_start <&"$OF_STARTER"
  fi
  # It may have been killed; for a run with an id it is the same run however often it is asked for.
  [ -n "$said" ] || read_start < <(run_request | onbox runs.start begin)
  return "${said:-1}"
}

read_start() {
  local line
  while IFS= read -r line; do
    case $line in
      'run '*) RUN_DIR=${line#run } ;;
      'code '*) printf '%s\n' "${line#code }" >"$STEP_CODE" ;;
      'over '*) said=${line#over } ;;
      *) printf '%s\n' "$line" ;;
    esac
  done
}

# Whether a training begins, and must not because results of earlier runs would be lost: known before anything is done.
would_lose_results() {
  case " ${STEPS[*]} " in *' train '*) [ -z "$OVERWRITE$ONLY" ] ;; *) return 1 ;; esac || return
  [ -f "$ONBOX" ] || return
  [ -n "$RESTART$RUN_ID" ] || { ! alive_in "$BOX_HOME" "$REPO_KEY" "$REPO_DIR" && find_work && ! find_run_of "$WORK"; } >/dev/null || return
  onbox results.keep_results look "$RUNS/.new" "$REPO_DIR" ${RESULTS[@]+"${RESULTS[@]}"} >"$SETUP_DIR/logs/train.log" 2>&1
  [ $? = 9 ]
}

# Ends the live run as a whole, and also waits for its runner: until then it has its session.
stop_alive_run() {
  local dir left
  dir=$(alive_in "$BOX_HOME" "$REPO_KEY" "$REPO_DIR") || return 0
  left=$(onbox run_processes stop "$dir" | sed -n 's/^left\t[^\t]*\t//p')
  [ -z "$left" ] || write_event setup warn code=run-left "count=$(wc -l <<<"$left")" "pid=${left%%$'\t'*}"
}
