# shellcheck shell=bash disable=SC2034,SC2119,SC2120,SC2153 # set here, read elsewhere; rendered
# steps: those in Python, onbox/steps/NAME.py; the others are steps/NAME.sh.

is_in_python() { ! declare -F "apply_$1" >/dev/null; }

# facts [NAME=VALUE...]: prints what they are told, each ended by NUL; VALUES is the recipe's.
facts() {
  printf '%s\0' "values=$VALUES" "home=$BOX_HOME" "setup=${SETUP_DIR-}" "only=$ONLY" "redo=$REDO" "key=$REPO_KEY" \
    "tree=$REPO_DIR" "number=$TREE_NUMBER" "main=$MAIN_DIR" "main_venv=$MAIN_VENV" "venv=$VENV" \
    "commit=$REPO_COMMIT" "branch=$REPO_BRANCH" "url=$REPO_URL" "usual=$WORKDIR/$REPO_NAME" "adopt=${ADOPT-}" "index=$INDEX" \
    ${SETUP_DIR:+"alive=$ALIVE_RUN"} "lock_patience=$LOCK_PATIENCE" "${STEPS[@]/#/step=}" \
    "snapshot=$REPO_SNAPSHOT" "content=$REPO_TREE" "secrets_id=$SECRETS_ID" "restart=$RESTART" \
    "resume=${RESUME-}" "overwrite=$OVERWRITE" "queue=${QUEUE-}" "nodes_id=$NODES_ID" "id=$RUN_ID" "gpus=$RUN_GPUS" \
    "variables=$RUN_VARIABLES" "command=$TRAIN_COMMAND" "session=$TRAIN_SESSION" "grace=$TRAIN_GRACE" \
    "is_local=$IS_LOCAL" ${SHARED[@]+"${SHARED[@]/#/shared=}"} ${SECRETS[@]+"${SECRETS[@]/#/secret=}"} \
    ${RESULTS[@]+"${RESULTS[@]/#/result=}"} "${KNOWN_HOSTS[@]/#/known_host=}" \
    ${ENV_NAMES[@]+"${ENV_NAMES[@]/#/env_name=}"} ${ENV_VALUES[@]+"${ENV_VALUES[@]/#/env_value=}"} "$@" over
}

declare -gA SAID=() ALONE=()

# ask_steps: sets SAID to what all of them say of themselves, a word each, and ALONE to those that a live run keeps as
# they are, see onbox/steps/why.py; and ALIVE_RUN. Prints which files were edited.
ask_steps() {
  local name said asked=()
  for name in "${STEPS[@]}"; do ! is_in_python "$name" || asked+=("$name"); done
  while IFS= read -r said; do
    name=${said%%$'\t'*} said=${said#*$'\t'}
    case $name in
      edited) printf 'edited\t%s\n' "$said" ;;
      alive) ALIVE_RUN=$said ;;
      *) SAID[$name]=${said%%$'\t'*} ALONE[$name]=${said#*$'\t'} ;;
    esac
  done < <(facts | onbox steps.why "${asked[@]}")
  [ "${#SAID[@]}" -gt 0 ] || find_alive
}
