# shellcheck shell=bash disable=SC2034,SC2088,SC2154 # set here, read elsewhere; a profile's ~ is literal
# main: what the script can be asked to do.
#   preflight        what this box lacks, a line each; writes nothing
#   plan [WORD...]   which steps would run, and why; writes nothing
#   run ID SECONDS [WORD...]   the set-up itself; waits that long for another one to end
# Words: `restart` begins the training again, `revive` does where it died with the box, `resume` lets such runs go on
# by their own commands; `queue=after:train-1` lets a new run wait for its turn; `only=gpu,smoke`
# takes steps and what they need, `without=gpu` leaves one out; `adopt` takes a tree that boxstrap did not make.
# `run=ID` begins a new run whatever ran before, once for that id: `command=BASE64`, `session=NAME`, `gpus=0,1`.
# BOXSTRAP_TOKEN in the environment opens a private repository; what is started never sees it.

main() {
  begin_script
  case ${1-} in
    preflight) lacks ;;
    plan)
      read_words "${@:2}"
      plan
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
      run=*)
        RUN_ID=${word#run=}
        with_train
        ;;
      command=*) TRAIN_COMMAND=$(base64 -d <<<"${word#command=}") ;;
      session=*) TRAIN_SESSION=${word#session=} ;;
      gpus=*) RUN_GPUS=${word#gpus=} ;;
      without=*) leave_out "${word#without=}" ;;
      only=*)
        ONLY=${word#only=}
        keep_only "$ONLY"
        ;;
    esac
  done
}

# A run may be asked for where the profile has no training of its own.
with_train() {
  case " ${STEPS[*]} " in *' train '*) return ;; esac
  NEEDS[train]=${STEPS[*]}
  STEPS+=(train) REPO_STEPS+=' train'
}

# keep_only STEP,STEP: they and what they need, in their order.
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
  begin_checks
  ALIVE_RUN=$(alive_in "$BOX_HOME" "$REPO_KEY" "$REPO_DIR") || :
  for name in "${STEPS[@]}"; do
    WHY=
    for need in ${NEEDS[$name]}; do
      case " $later " in *" $need "*) WHY=after ;; esac
    done
    # Whether a training would begin again is known as soon as its commit is there.
    case $name:$WHY:$later in train:after:*' repo'*) ;; train:after:*) WHY= ;; esac
    [ -n "$WHY" ] || find_reason "$name" 2>/dev/null
    if [ -n "$WHY" ] && left_alone "$name"; then WHY=alive; fi
    case $WHY in '' | alive) ;; *) later="$later $name" ;; esac
    [ -n "$WHY" ] || why_right "$name"
    printf 'plan\t%s\t%s\n' "$name" "$WHY"
  done
  [ ! -s "$NOTES/python.reused" ] || printf 'reused\t%s\n' "$(<"$NOTES/python.reused")"
  [ -z "$ALIVE_RUN" ] || printf 'differs\t%s\n' "$(differences "$ALIVE_RUN")"
}

setup() {
  local taken=0
  open_setup "$1"
  # Who asks for a run does not ask for the same as who asks for a setup, or for another run.
  [ -z "$RUN_ID" ] || SCRIPT_ID+=+$RUN_ID
  take_lock "$2" || taken=$?
  case $taken in
    1) finish 8 busy ;;
    2) finish 0 same ;;
  esac
  trap cancel TERM INT
  prepare_box
  ! is_begun || finish 0
  [ -z "$RUN_ID" ] || choose_tree
  # From here on a look at the box asks this script whether it is still right.
  [ -n "$ONLY" ] || install_script
  [ -z "$REVIVE" ] || ! last_run_died || RESTART=yes
  [ -z "$RESTART" ] || stop_alive_run
  [ -z "$RUN_ID" ] || RESTART=yes
  ALIVE_RUN=$(alive_in "$BOX_HOME" "$REPO_KEY" "$REPO_DIR") || :
  # A pipe of our own, to which the steps write.
  exec 3<> <(:)
  run_graph
  forget_secrets
  forget_old_setups
  finish "$SETUP_EXIT"
}

# finish EXIT [CODE]: the last line of the events, then the end.
finish() {
  end_setup "$@"
  exit 0
}

cancel() {
  # It comes in the middle of anything, of an `IFS= read` too.
  local IFS=$' \t\n'
  trap '' TERM INT
  end_others
  finish 7 cancelled
}

# One for each repository; `setup.sh` is the last. That of a run in a tree beside is `run.sh`: a setup is of the main tree.
install_script() {
  local own=$BOX_HOME/steps/$REPO_KEY/setup.sh beside=''
  [ -d "${own%/*}" ] || mkdir -p "${own%/*}"
  if [ "$TREE_NUMBER" != 1 ] && [ -e "$own" ]; then beside=yes own=${own%/*}/run.sh; fi
  { [ -f "$own" ] && cmp -s "$SETUP_DIR/setup.sh" "$own"; } || write_file "$own" 600 <"$SETUP_DIR/setup.sh"
  [ -n "$beside" ] || [ "$own" -ef "$BOX_HOME/setup.sh" ] ||
    ln -sfn "steps/$REPO_KEY/setup.sh" "$BOX_HOME/setup.sh"
}
