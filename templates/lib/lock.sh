# shellcheck shell=bash
# lock: one setup at a time on a box. The lock is a flock; the file says who holds it.

# take_lock SECONDS: 0 when it is ours, 1 when another setup kept it, 2 when the same setup is at work.
take_lock() {
  local until=$((SECONDS + $1)) holder said=
  exec 9>>"$BOX_HOME/lock"
  until flock -n 9; do
    holder=$(cat "$BOX_HOME/lock")
    if [ "$(sed -n 2p <<<"$holder")" = "$SCRIPT_ID" ] && alive "$(sed -n 1p <<<"$holder")"; then
      return 2
    fi
    # Its leader is gone, but what it started still holds the lock: end that, it is ours.
    alive "$(sed -n 1p <<<"$holder")" || end_session "${holder%% *}"
    [ "$SECONDS" -lt "$until" ] || return 1
    [ -n "$said" ] || write_event setup wait code=busy
    said=yes
    sleep 0.2
  done
  printf '%s\n%s\n%s\n' "$(identity $$)" "$SCRIPT_ID" "$SETUP_ID" >"$BOX_HOME/lock"
}

# A package manager among them is waited for: it is never interrupted.
end_session() {
  case $1 in '' | *[!0-9]*) return ;; esac
  if members "$1" | while read -r pid; do cat "/proc/$pid/comm" 2>/dev/null; done | grep -qxE "$(IFS='|' && printf '%s' "${MANAGERS[*]}")|dpkg|rpm"; then
    return
  fi
  members "$1" | while read -r pid; do kill -TERM "$pid" 2>/dev/null || :; done
  sleep 0.3
  members "$1" | while read -r pid; do kill -KILL "$pid" 2>/dev/null || :; done
}
