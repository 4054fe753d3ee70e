# shellcheck shell=bash disable=SC2034,SC2153 # set here, read elsewhere; STEPS is rendered
# engine: runs the graph of steps; independent ones at the same time.

# NEEDS[step], which is rendered: the steps that must have succeeded before it.
declare -gA STATE=() CHILD=()
MISSING=' '

# One step, in a process of its own: decide, apply, check again, stamp, report.
one_step() {
  local rc
  STEP=$1 STEP_LOG="$SETUP_DIR/logs/$1.log" STEP_CODE="$SETUP_DIR/logs/$1.code"
  # Descriptor 8 has the secrets that came with this setup, see `hide_secrets`.
  [ "$1" = shell ] || exec 8<&-
  rc=0
  if is_in_python "$1"; then
    # What stage 0 did for it was its beginning.
    if [[ $BEGUN == *" $1 "* ]]; then set -- "$1" begun; fi
    if [ "$1" = repo ]; then await_python; else TOKEN=''; fi
    facts "token=$TOKEN" | onbox steps.apply "$@" || rc=$?
    [ "$rc" -eq 0 ] || emit_failure "$rc"
    return
  fi
  find_why "$1"
  if is_skipped; then
    emit skip "why=$WHY"
    return
  fi
  emit start "why=$WHY"
  # Whatever ends it now, its last success counts no more. The file stays: that of `repo` says whose a tree is.
  [ ! -f "$STAMP" ] || is_spoiled "$1" || echo unfinished >>"$STAMP" || :
  # `if` would switch `set -e` off inside; a subshell of its own keeps it.
  set +e
  (set -e; "apply_$1")
  rc=$?
  set -e
  if [ "$rc" -eq 0 ] && ! "check_$1"; then
    printf 'check-failed\n' >"$STEP_CODE"
    rc=1
  fi
  if [ "$rc" -eq 0 ]; then
    write_stamp "$1"
    emit ok
  else
    emit_failure "$rc"
  fi
}

emit_failure() {
  local code
  read_text "$STEP_CODE" || :
  code=${TEXT%$'\n'}
  emit fail "code=${code:-$(classify_error "$STEP_LOG")}" "rc=$1"
}

start_step() {
  STATE[$1]=running
  (one_step "$1") >>"$SETUP_DIR/logs/$1.log" 2>&1 </dev/null &
  CHILD[$1]=$!
}

start_ready() {
  local name need ready
  [ "$SETUP_EXIT" -eq 0 ] || return 0
  for name in "${STEPS[@]}"; do
    [ "${STATE[$name]-}" = waiting ] || continue
    ready=yes
    for need in ${NEEDS[$name]}; do
      case ${STATE[$need]-ok} in ok) ;; *) ready= ;; esac
    done
    [ -z "$ready" ] || start_step "$name"
  done
}

# exit_of STEP RC: prints what its failure means for the setup: 5 the box lacks something, 6 return it, 9 results of
# earlier runs would be lost, else 7.
exit_of() {
  case $1:$2 in train:9) printf '9\n' && return ;; esac
  case $1:$2 in preflight:*) printf '5\n' ;; gpu:6 | smoke:6) printf '6\n' ;; *) printf '7\n' ;; esac
}

# Ends what is running after a failure, as a run is ended; a package manager is never interrupted.
end_others() {
  local name begun=() _identity=''
  for name in "${!CHILD[@]}"; do
    [ "$name" = tools ] || ! find_identity "${CHILD[$name]}" || begun+=("$_identity")
  done
  end_processes ${begun[@]+"${begun[@]}"}
}

# step_over STEP OUTCOME [RC]
step_over() {
  [ -n "${CHILD[$1]-}" ] || return 0 # it was given up already
  wait "${CHILD[$1]}" 2>/dev/null || :
  unset "CHILD[$1]"
  STATE[$1]=$2
  [ "$2" = ok ] && return
  if [ "$SETUP_EXIT" -eq 0 ]; then
    SETUP_EXIT=$(exit_of "$1" "${3-1}")
    end_others
  fi
}

# Finds steps whose process vanished without a final event (killed, out of memory). The event may still be in the pipe:
# a missing process only counts if it is still missing at the next look, after the pipe was read.
find_vanished() {
  local name running missing=' '
  running=$'\n'$(jobs -rp)$'\n'
  ! read -r -t 0 -u 3 || return 0
  for name in "${!CHILD[@]}"; do
    [[ $running != *$'\n'"${CHILD[$name]}"$'\n'* ]] || continue
    if [[ $MISSING == *" ${CHILD[$name]} "* ]]; then
      # After a failure the engine ended it, so that is no news.
      [ "$SETUP_EXIT" -ne 0 ] || write_event "$name" fail code=killed rc=137
      step_over "$name" failed
    else
      missing+="${CHILD[$name]} "
    fi
  done
  MISSING=$missing
}

run_graph() {
  local name step event rest words line='' piece='' looked=$SECONDS
  for name in "${STEPS[@]}"; do STATE[$name]=waiting; done
  start_ready
  while [ "${#CHILD[@]}" -gt 0 ]; do
    # Not only in silence: processes that a killed step left behind may still write events.
    if [ "$((SECONDS - looked))" -ge 2 ]; then
      looked=$SECONDS
      find_vanished
    fi
    piece=
    if ! IFS= read -r -t 1 -u 3 piece; then
      # The time may be up in the middle of a line: keep what was read of it.
      line+=$piece
      continue
    fi
    read -r step event rest <<<"$line$piece"
    line=
    read -ra words <<<"$rest"
    # After a failure the other steps are ended: that they fail is no news.
    if [ "$event" != fail ] || [ "$SETUP_EXIT" -eq 0 ]; then write_event "$step" "$event" "${words[@]}"; fi
    case $event in
      ok | skip) step_over "$step" ok ;;
      fail) step_over "$step" failed "${rest##*rc=}" ;;
    esac
    start_ready
  done
}
