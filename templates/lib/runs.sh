# shellcheck shell=bash disable=SC2034 # set here, read elsewhere
# runs: what a setup asks of runs, one folder each; how they are made and start: onbox/runs/start.py.

# is_newer RUN OTHER: whether it was started later; OTHER may be empty. A folder's own time is its last write.
is_newer() {
  [ -z "$2" ] || [ "$1/started" -nt "$2/started" ]
}

# Whether the run of RUN_ID was started, or is just being started; sets RUN_DIR.
is_started() { [ -n "$RUN_ID" ] && RUN_DIR=$(onbox runs.start id "$BOX_HOME" "$REPO_KEY" "$RUN_ID"); }

# find_alive: sets ALIVE_RUN to the live run that has this tree, if there is one.
find_alive() { ALIVE_RUN=$(live_run alive "$REPO_KEY" "$REPO_DIR") || :; }

# live_run WORD ARGUMENT...: prints a run that is alive, or waits for its turn, and is so: see onbox/work/trees.py. 1 if
# none is; the runs of most boxes are over, and none need be asked then. Where no Python answers, the step `agent`
# brings one again; a run whose processes live may be anywhere until then.
live_run() {
  local dir run
  for dir in "$BOX_HOME"/runs/*/*/; do
    if [ ! -d "$dir" ] || [ -f "$dir/exit" ]; then continue; fi
    if IFS= read -r run < <(onbox work.trees "$1" "$BOX_HOME" "${@:2}"); then
      [ -n "$run" ] && printf '%s\n' "$run"
      return
    fi
    while read -r run; do
      if [ "$run" = queued ] || alive "$run"; then printf '%s\n' "${dir%/}" && return; fi
    done < <(cat "$dir/pid" 2>/dev/null || { [ ! -f "$dir/queue" ] || echo queued; })
  done
  return 1
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

# request_run: prints what a run is made of, then `made_of`, in the tree and of the state that come on standard input, each once it is
# known; or which step is not right for it. The box itself was checked when it was set up, and may have been found bad
# since. onbox/runs/run.py starts it.
request_run() {
  local name
  set +e
  exec 3>/dev/null
  STEP_LOG=/dev/null STEP_CODE=/dev/null
  read -r name || return
  use_tree "$name"
  begin_sources
  read -r REPO_SNAPSHOT REPO_COMMIT REPO_TREE REPO_BRANCH || return
  for name in gpu smoke; do
    case " ${STEPS[*]} " in *" $name "*) ;; *) continue ;; esac
    if is_spoiled "$name" || { [ "$name" = gpu ] && is_line "$BOX_HOME/gpu.said" 'verdict return'; }; then printf 'setup=%s\0over\0' "$name" && return; fi
  done
  find_environment
  for name in shell python data prepare; do
    case " ${STEPS[*]} " in *" $name "*) ;; *) continue ;; esac
    find_reason "$name"
    [ -z "$WHY" ] || { printf 'setup=%s\0over\0' "$name" && return; }
  done
  find_work
  run_request
  made_of
}

# start_run: makes a run and starts it, or goes on with the one of the same work; sets RUN_DIR. 9 if results of earlier
# runs that are not home would be lost.
start_run() {
  local said rc=0
  find_work
  said=$(run_request | onbox runs.start begin) || rc=$?
  [ "$rc" -eq 0 ] || printf '%s\n' "$said" | report
  RUN_DIR=$said
  return "$rc"
}

# Whether a training begins, and must not because results of earlier runs would be lost: known before anything is done.
would_lose_results() {
  case " ${STEPS[*]} " in *' train '*) [ -z "$OVERWRITE$ONLY" ] ;; *) return 1 ;; esac || return
  [ -f "$ONBOX" ] || return
  [ -n "$RESTART$RUN_ID" ] || { find_alive && [ -z "$ALIVE_RUN" ] && find_work && ! find_run_of "$WORK"; } || return
  onbox results.keep_results look "$RUNS/.new" "$REPO_DIR" ${RESULTS[@]+"${RESULTS[@]}"} >"$SETUP_DIR/logs/train.log" 2>&1
  [ $? = 9 ]
}

# Ends the live run as a whole, and also waits for its runner: until then it has its session.
stop_alive_run() {
  local left
  find_alive
  [ -n "$ALIVE_RUN" ] || return 0
  left=$(onbox run_processes stop "$ALIVE_RUN" | sed -n 's/^left\t[^\t]*\t//p')
  [ -z "$left" ] || write_event setup warn code=run-left "count=$(wc -l <<<"$left")" "pid=${left%%$'\t'*}"
}
