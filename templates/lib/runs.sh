# shellcheck shell=bash disable=SC2034 # set here, read elsewhere
# runs: what a setup asks of runs, one folder each; how they are made and start: onbox/steps/train.py.

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

# request_run: prints what a run of the tree and the state that come on standard input is made of, each once it is known.
# onbox/steps/run.py starts it.
request_run() {
  local number
  set +e
  exec 3>/dev/null
  STEP_LOG=/dev/null STEP_CODE=/dev/null
  read -r number || return
  use_tree "$number"
  read -r REPO_SNAPSHOT REPO_COMMIT REPO_TREE REPO_BRANCH || return
  facts
}

# Whether a training begins, and must not because results of earlier runs would be lost: known before anything is done.
would_lose_results() {
  case " ${STEPS[*]} " in *' train '*) [ -z "$OVERWRITE$ONLY" ] ;; *) return 1 ;; esac || return
  find_alive
  facts | onbox steps.train >"$SETUP_DIR/logs/train.log" 2>&1
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
