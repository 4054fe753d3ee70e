# shellcheck shell=bash disable=SC2034,SC2088,SC2153 # set here, read elsewhere; the capitals are rendered
# main: the steps one after another, told in plain lines, kept where `boxstrap status` looks.

main() {
  set -eu
  unset BASH_ENV CDPATH GREP_OPTIONS
  LC_ALL=C
  umask 022
  HOME=${HOME:-$(cd ~ && pwd)}
  WORKDIR=$(expand_home "$WORKDIR")
  BOX_HOME=$WORKDIR/.boxstrap
  find_repository
  case $VENV in /* | '~'*) VENV_DIR=$(expand_home "$VENV") ;; *) VENV_DIR=$REPO_DIR/$VENV ;; esac
  ENV_FILE=$BOX_HOME/env WORK='' TOKEN='' SETUP_DIR=''
  PRIVATE=$(mktemp -d)
  trap 'rm -rf "$PRIVATE"' EXIT
  gather
  apply_preflight
  # Where git is here already, a repository that can't be read stops it before anything has changed.
  local name access=''
  if have git; then gain_access && access=yes; fi
  begin
  for name in "${STEPS[@]}"; do
    [ "$name" = tools ] || [ -n "$access" ] || gain_access
    [ "$name" = tools ] || access=yes
    one_step "$name"
  done
  write_status over 0
  closing_words
}

begin() {
  local i
  PAIRS=()
  for i in "${!ENV_NAMES[@]}"; do PAIRS+=("${ENV_NAMES[i]}=${ENV_VALUES[i]}"); done
  PAIRS+=(${GATHERED[@]+"${GATHERED[@]}"})
  mkdir -p "$BOX_HOME/box"
  exec 9>>"$BOX_HOME/lock"
  flock -w 60 9 || { printf 'boxstrap: another setup is at work on this box\n' >&2 && exit 8; }
  SETUP_ID=$(date -u +%Y%m%d-%H%M%S)-d${RANDOM} SCRIPT_ID=short
  SETUP_DIR=$BOX_HOME/setups/$SETUP_ID
  mkdir -p "$SETUP_DIR/logs"
  identity $$ | write_file "$SETUP_DIR/pid" 600
  printf '%s\n%s\n%s\n' "$(identity $$)" "$SCRIPT_ID" "$SETUP_ID" >"$BOX_HOME/lock"
  write_status running 0
  trap '' HUP
  [ "$BOX_HOME" -ef "$HOME/.boxstrap" ] || ln -sfn "$BOX_HOME" "$HOME/.boxstrap" || :
  unpack_box
  ALIVE_RUN=$(alive_in "$BOX_HOME" "$REPO_KEY" "$REPO_DIR") || :
}

# Steps of the whole script tell events; here the lines on the screen and the logs say it.
emit() { :; }

line() { printf '%-8s %s\n' "$1" "$2"; }

# One step: left out where it is right already, or where a run is alive that stands on it.
one_step() {
  local rc began=$SECONDS
  STEP=$1 STEP_LOG=$SETUP_DIR/logs/$1.log STEP_CODE=$SETUP_DIR/logs/$1.code
  case $1:$ALIVE_RUN in
    repo:?* | python:?* | train:?*) line "$1" "left as it is: ${ALIVE_RUN##*/} is running" && return ;;
  esac
  if "check_$1" 2>/dev/null; then
    line "$1" 'right already'
    return
  fi
  # `if` would switch `set -e` off inside; a subshell of its own keeps it.
  set +e
  (set -e; "apply_$1") >"$STEP_LOG" 2>&1 </dev/null
  rc=$?
  set -e
  if [ "$rc" -eq 0 ]; then
    line "$1" "ok, $((SECONDS - began)) s"
    return
  fi
  tail -n 12 "$STEP_LOG" >&2
  line "$1" "failed; all it said: $STEP_LOG" >&2
  case $1:$rc in gpu:6) rc=6 && printf 'Return this box: nothing was built on it.\n' >&2 ;; *) rc=7 ;; esac
  write_status over "$rc"
  exit "$rc"
}

# A network that is gone for half a minute is waited for; what no index has never comes.
with_retries() {
  local until=$((SECONDS + 60))
  until "$@"; do
    [ "$SECONDS" -lt "$until" ] && ! grep -q 'No solution' "$STEP_LOG" || return
    sleep 8
  done
}

closing_words() {
  local dir waited=0
  [ -n "$TRAIN_COMMAND" ] || return 0
  find_work
  dir=${ALIVE_RUN:-$(run_of "$WORK")}
  until [ -s "$dir/log" ] || [ -f "$dir/exit" ] || [ "$waited" -ge 300 ]; do sleep 0.1 && waited=$((waited + 1)); done
  head -n 5 "$dir/log" 2>/dev/null || :
  printf '%s: %s\nits log: tail -F %s\nfrom your own machine: boxstrap status --host HOST; logs, stop\n' \
    "${dir##*/}" "$(run_state "$dir")" "$dir/log"
  [ "$(cat "$dir/work")" = "$WORK" ] || {
    printf 'boxstrap: a run of other work is alive, and this was not started: wait for it, or stop it\n' >&2
    exit 8
  }
}
