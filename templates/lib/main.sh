# shellcheck shell=bash disable=SC2034,SC2088,SC2154 # set here, read elsewhere; a profile's ~ is literal
# main: what the script can be asked to do.
#   preflight        prints what this box lacks, one line each; writes nothing
#   plan [WORD...]   prints which steps would run, and why; writes nothing
#   run-request WORD...   what a run is made of, in the tree and of the state that standard input names
#   run ID SECONDS [WORD...]   the setup itself; waits that long for another one to end
# Words: `restart` starts the training again, `revive` does so if it died with the box, `resume` continues such runs
# with their own commands; `queue=after:train-1` makes a new run wait for its turn; `only=gpu,smoke`
# runs these steps and what they need, `without=gpu` leaves one out; `redo=prepare` does a step again although it is right; `adopt` takes a tree that boxstrap did not make.
# `overwrite` lets it overwrite results that are not home; `beside` gives a new run a tree without any.
# `run=ID` starts a new run whatever ran before, once for that id: `command=TEXT`, `session=NAME`, `gpus=0,1`,
# `variables=TEXT`, a line NAME=VALUE each, both as `printf %b` reads them; `nodes=ID` with those of other nodes, as onbox/nodes/check.py wrote down.
# Standard input of `run` has the token that opens a private repository, if any: no process but git has it in its environment.

main() {
  begin_script
  case ${1-} in
    preflight) lacks ;;
    plan)
      read_words "${@:2}"
      plan
      ;;
    run-request)
      read_words "${@:2}"
      request_run
      ;;
    run)
      read_words "${@:4}"
      setup "$2" "$3"
      ;;
    *)
      printf 'usage: bash setup.sh preflight | plan | run ID SECONDS\n' >&2
      return 2
      ;;
  esac
}

read_words() {
  local word
  for word; do
    case $word in
      restart) RESTART=yes ;;
      revive) REVIVE=yes ;;
      resume) RESUME=yes ;;
      queue=*)
        QUEUE=${word#queue=}
        QUEUE=${QUEUE/:/ }
        ;;
      adopt) ADOPT=yes ;;
      overwrite) OVERWRITE=yes ;;
      beside) BESIDE=yes ;;
      run=*)
        RUN_ID=${word#run=}
        with_train
        ;;
      command=*) printf -v TRAIN_COMMAND %b "${word#command=}" ;;
      session=*) TRAIN_SESSION=${word#session=} ;;
      gpus=*) RUN_GPUS=${word#gpus=} ;;
      variables=*) printf -v RUN_VARIABLES %b "${word#variables=}" ;;
      nodes=*) NODES_ID=${word#nodes=} ;;
      without=*) leave_out "${word#without=}" ;;
      redo=*) REDO=${word#redo=} ;;
      only=*)
        ONLY=${word#only=}
        keep_only "$ONLY"
        ;;
    esac
  done
}

# A run may be asked for although the profile has no training of its own.
with_train() {
  case " ${STEPS[*]} " in *' train '*) return ;; esac
  NEEDS[train]=${STEPS[*]}
  STEPS+=(train) REPO_STEPS+=' train'
}

# keep_only STEP,STEP: keeps these steps and what they need, in their order.
keep_only() {
  local name kept=() wanted
  wanted=" $(for name in ${1//,/ }; do closure_of "$name"; done | tr '\n' ' ') "
  for name in "${STEPS[@]}"; do
    case $wanted in *" $name "*) kept+=("$name") ;; esac
  done
  STEPS=("${kept[@]}")
}

leave_out() {
  local name kept=()
  for name in "${STEPS[@]}"; do [ "$name" = "$1" ] || kept+=("$name"); done
  STEPS=("${kept[@]}")
}

closure_of() {
  local need
  printf '%s\n' "$1"
  for need in ${NEEDS[$1]}; do closure_of "$need"; done
}

plan() {
  local name need later=
  ask_steps
  for name in "${STEPS[@]}"; do
    WHY=
    for need in ${NEEDS[$name]}; do
      case " $later " in *" $need "*) WHY=after ;; esac
    done
    # Whether a training would start again is known as soon as its commit and its data are there.
    case $name:$WHY:$later in train:after:*' repo'* | train:after:*' data'*) ;; train:after:*) WHY= ;; esac
    if [ -z "$WHY" ]; then find_why "$name" 2>/dev/null; elif left_alone "$name"; then WHY=alive; fi
    is_skipped || later="$later $name"
    printf 'plan\t%s\t%s\n' "$name" "$WHY"
  done
  [ ! -s "$NOTES/python.reused" ] || printf 'reused\t%s\n' "$(<"$NOTES/python.reused")"
  [ -z "$ALIVE_RUN" ] || printf 'differs\t%s\n' "${SAID[differs]-}"
}

setup() {
  local taken=0
  IFS= read -r TOKEN || :
  exec </dev/null
  open_setup "$1"
  # A request for a run is not the same as a request for a setup, or for another run.
  [ -z "$RUN_ID" ] || SCRIPT_ID+=+$RUN_ID
  take_lock "$2" || taken=$?
  case $taken in
    1) finish 8 busy ;;
    2) finish 0 same ;;
  esac
  trap cancel TERM INT
  prepare_box
  ! is_started || finish 0
  [ -z "$RUN_ID" ] || choose_tree
  ! (would_lose_results) || finish 9 results-unsafe
  # From here on a probe asks this script whether the box is still right.
  [ -n "$ONLY" ] || install_script
  [ -z "$REVIVE" ] || ! onbox runs.start died "$BOX_HOME" "$REPO_KEY" || RESTART=yes
  [ -z "$RESTART" ] || stop_alive_run
  [ -z "$RUN_ID" ] || RESTART=yes
  find_alive
  need_python
  # The pipe to which the steps write their events.
  exec 3<> <(:)
  run_graph
  forget_secrets
  forget_old_setups
  finish "$SETUP_EXIT"
}

# finish EXIT [CODE]: reports EXIT in the last event; the process itself ends with 0.
finish() {
  end_setup "$@"
  exit 0
}

cancel() {
  # The signal may come in the middle of anything, even of an `IFS= read`.
  local IFS=$' \t\n'
  trap '' TERM INT
  end_others
  finish 7 cancelled
}

# Each repository has its own; the box's `setup.sh` links to the last. A run in a tree beside has `run.sh` instead.
install_script() {
  local own=$BOX_HOME/steps/$REPO_KEY/setup.sh beside=''
  [ -d "${own%/*}" ] || mkdir -p "${own%/*}"
  if [ "$TREE_NUMBER" != 1 ] && [ -e "$own" ]; then beside=yes own=${own%/*}/run.sh; fi
  { [ -f "$own" ] && cmp -s "$SETUP_DIR/setup.sh" "$own"; } || write_file "$own" 600 <"$SETUP_DIR/setup.sh"
  [ -n "$beside" ] || [ "$own" -ef "$BOX_HOME/setup.sh" ] ||
    ln -sfn "steps/$REPO_KEY/setup.sh" "$BOX_HOME/setup.sh"
}
