# shellcheck shell=bash disable=SC2034,SC2088,SC2153,SC2154 # set here, read elsewhere; the capitals are rendered
# carrier: starts the script on this box, as a login over SSH would, and shows its events.

enter_door() {
  set -eu
  reset_shell
  umask 022
  local word
  WAIT='' WORDS=''
  case $TRAIN_AT_BOOT in restart) WORDS=revive ;; resume) WORDS=resume ;; esac
  # Without that step the folder is the user's own, as in a dev container.
  case " ${STEPS[*]} " in *' repo '*) ;; *) REPO_URL='' ;; esac
  for word; do case $word in wait) WAIT=yes ;; *) WORDS="$WORDS $word" ;; esac; done
  # The container is being stopped, and only its first process is told.
  [ -z "$WAIT" ] || trap heed_stop TERM
  HOME=${HOME:-$(cd ~ && pwd)} && export HOME
  WORKDIR=$(expand_home "$WORKDIR")
  BOX_HOME=$WORKDIR/.boxstrap TOKEN='' SETUP_DIR=''
  PRIVATE=$(mktemp -d)
  trap 'rm -rf "$PRIVATE"' EXIT
  look
  GATHERED=()
  # An image, or a machine that is only prepared, must contain no secret.
  case $WORDS in *without=train*) ;; *) gather ;; esac
  start_setup
  look_after_training
}

# Ends here, with nothing written, if there is nothing to do or the box can't be set up. Sets PLAN.
look() {
  local lacks
  lacks=$(recipe && begin_box && lacks | cut -f3)
  [ -z "$lacks" ] || refuse "$lacks"
  # shellcheck disable=SC2086 # words of our own
  PLAN=$(recipe && begin_box && plan <(whole_script) $WORDS)
  case $WORDS in *revive*) return ;; esac
  if ! grep -E $'^plan\t' <<<"$PLAN" | grep -qvE $'\t(done|alive|died)$'; then
    ! grep -qxF $'plan\ttrain\talive' <<<"$PLAN" || not_started
    printf 'boxstrap: nothing to do, the box is as the profile says\n'
    look_after_training
    exit 0
  fi
}

# Fills GATHERED with NAME=VALUE of each secret; ends here, with nothing changed, if one can't be had.
gather() {
  local name
  for name in "${SECRETS[@]}"; do
    VALUE=$(box_value "$name")
    [ -n "$VALUE" ] || ask_for "$name" ||
      refuse "the secret $name is not in this box's environment, and there is no terminal to ask on"
    GATHERED+=("$name=$VALUE")
  done
}

# Puts the secrets into the setup's folder. If one changed since the last time, the step `shell` runs again.
hand_over_secrets() {
  [ "${#GATHERED[@]}" -gt 0 ] || return 0
  printf '%s\0' "${GATHERED[@]}" | write_file "$SETUP_DIR/secrets" 600
  cmp -s "$SETUP_DIR/secrets" "$BOX_HOME/secrets" || rm -f "$BOX_HOME"/steps/*/shell.ok "$BOX_HOME/secrets.ids"
}

start_setup() {
  # If git has to be installed first, that comes before the check whether the repository can be read.
  if [ -n "$REPO_URL" ] && ! have git; then run_script only=tools; fi
  # Unless the box has this commit already.
  [ -z "$REPO_URL" ] || grep -qE $'^plan\trepo\t(done|alive|broken)$' <<<"$PLAN" || with_access "$REPO_URL" can_read
  # shellcheck disable=SC2086 # words of our own
  run_script $WORDS
}

# run_script [WORD...]: runs a setup detached from this terminal, and prints its events as lines.
run_script() {
  local id leader
  id=$(date -u +%Y%m%d-%H%M%S)-d$RANDOM
  SETUP_DIR=$BOX_HOME/setups/$id
  (umask 077 && mkdir -p "$SETUP_DIR")
  whole_script | write_file "$SETUP_DIR/setup.sh" 600
  (umask 077 && store_program "$BOX_HOME/box/${PROGRAM:0:16}")
  hand_over_secrets
  : >"$SETUP_DIR/events.jsonl"
  setsid bash "$SETUP_DIR/setup.sh" run "$id" 60 "$@" < <(printf '%s\n' "$TOKEN") >"$SETUP_DIR/output" 2>&1 &
  leader=$!
  tail -n +1 -s 0.2 --pid="$leader" -f "$SETUP_DIR/events.jsonl" 2>/dev/null | sed -unE \
    's/.*"step":"([a-z]+)","event":"(start|note|skip|ok|warn|fail|wait)"(.*"(code|why)":"([a-z0-9-]+)")?.*/\1 \2 \5/p'
  wait "$leader" || :
  end_of_setup
}

# Prints the page that the box would have got over SSH.
whole_script() {
  local file here=$'RECIPE_GOES_HERE\n'
  for file in "${PROGRAM_FILES[@]}"; do
    case $file in setup.sh*) file=${file#*$'\n'} && break ;; esac
  done
  printf %s "${file%%"$here"*}" && recipe_text && printf %s "${file#*"$here"}"
}

end_of_setup() {
  local rc step
  rc=$(sed -nE 's/.*"event":"done","rc":([0-9]+).*/\1/p' "$SETUP_DIR/events.jsonl")
  if [ "${rc:-1}" -eq 0 ]; then
    ! grep -qF '"step":"train","event":"skip","why":"alive"' "$SETUP_DIR/events.jsonl" || not_started
    return 0
  fi
  step=$(sed -nE 's/.*"step":"([a-z]+)","event":"fail".*/\1/p;T;q' "$SETUP_DIR/events.jsonl")
  end_failed "${rc:-1}" ${step:+"$SETUP_DIR/logs/$step.log"} "$SETUP_DIR/output"
}

heed_stop() {
  local onbox=${BOX_HOME-}/box/${PROGRAM:0:16}/onbox/__main__.py
  [ ! -f "${onbox%/*}/runs/notice.py" ] || "$BOX_HOME/agent/bin/python" -I -B "$onbox" runs.notice "$BOX_HOME" || :
  sleep 0.5
  # shellcheck disable=SC2046 # numbers
  kill $(jobs -p) 2>/dev/null || :
  exit 143
}

# If the machine ends with this command (`wait`), the command lasts as long as the training; a person sees it begin.
look_after_training() {
  if [ -n "$WAIT" ]; then
    # Behind: a signal is heeded meanwhile.
    tell_newest wait &
    wait "$!" || exit
  elif [ -n "$TRAIN_COMMAND" ]; then
    tell_newest || :
  fi
}

# tell_newest [wait]: see onbox/runs/newest.py.
tell_newest() {
  local ONBOX=$BOX_HOME/box/current/onbox/__main__.py
  onbox runs.newest "$BOX_HOME" "$REPO_KEY" "$REPO_ROOT" "$REPO_NAME" "$@"
}

not_started() {
  tell_newest || :
  printf 'boxstrap: a run of other work is alive, and this was not started: wait for it, or stop it\n' >&2
  exit 8
}

# end_failed EXIT LOG...: prints the end of the logs and what the exit code means, then exits.
end_failed() {
  tail -qn 12 "${@:2}" >&2 || :
  [ "$1" -ne 6 ] || printf 'boxstrap: return this box\n' >&2
  exit "$1"
}
