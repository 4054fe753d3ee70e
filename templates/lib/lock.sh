# shellcheck shell=bash disable=SC2154 # set elsewhere
# lock: one setup at a time on a box. The lock is a flock; the file says who holds it.

# take_lock SECONDS: 0 when it is ours, 1 when another setup kept it, 2 when the same setup is at work.
take_lock() {
  local until=$((SECONDS + $1)) said=
  exec 9>>"$BOX_HOME/lock"
  until flock -n 9; do
    read_holder
    if [ "$HOLDER_SCRIPT" = "$SCRIPT_ID" ] && alive "$HOLDER"; then return 2; fi
    # Its leader is gone, but what it started still holds the lock: end that, it is ours.
    end_leftovers # full
    [ "$SECONDS" -lt "$until" ] || return 1
    [ -n "$said" ] || write_event setup wait code=busy
    said=yes
    sleep 0.2
  done
  # Killed all at once, it left the lock free, and perhaps a uv or a git that still writes.
  read_holder
  end_leftovers # full
  find_identity $$
  printf '%s\n' "$_identity" "$SCRIPT_ID" "$SETUP_ID" "$REPO_NAME ${REPO_COMMIT:0:12}" >"$BOX_HOME/lock"
}

read_holder() {
  HOLDER='' HOLDER_SCRIPT='' HOLDER_SETUP=''
  { read -r HOLDER && read -r HOLDER_SCRIPT && read -r HOLDER_SETUP; } <"$BOX_HOME/lock" || :
}

# What a setup left behind that was killed. A package manager among it is waited for: it is never interrupted.
end_leftovers() {
  local pids=() pid
  [ -n "$HOLDER_SETUP" ] && ! alive "$HOLDER" || return 0
  mapfile -t pids < <(leftovers)
  [ "${#pids[@]}" -gt 0 ] || return 0
  for pid in "${pids[@]}"; do
    case " ${MANAGERS[*]} dpkg rpm " in *" $(cat "/proc/$pid/comm" 2>/dev/null || printf none) "*) return 0 ;; esac
  done
  kill -TERM "${pids[@]}" 2>/dev/null || :
  sleep 0.3
  mapfile -t pids < <(leftovers)
  [ "${#pids[@]}" -eq 0 ] || kill -KILL "${pids[@]}" 2>/dev/null || :
}

# Numbers are used again, after a restart all at once: the session's number is not enough, each must name
# the setup too. A training is in a session of its own.
leftovers() {
  local pid
  members "${HOLDER%% *}" | while read -r pid; do
    ! grep -aqF -- "$HOLDER_SETUP" "/proc/$pid/cmdline" "/proc/$pid/environ" 2>/dev/null || printf '%s\n' "$pid"
  done
}
