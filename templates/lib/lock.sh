# shellcheck shell=bash disable=SC2154 # set elsewhere
# lock: one setup at a time on a box. The lock is a flock; the file says who holds it.

# take_lock SECONDS: 0 when it is ours, 1 when another setup kept it, 2 when the same setup is at work.
take_lock() {
  local until=$((SECONDS + $1)) said=
  exec 9>>"$BOX_HOME/lock"
  until flock -n 9; do
    read_holder
    if [ "$HOLDER_SCRIPT" = "$SCRIPT_ID" ] && alive "$HOLDER"; then return 2; fi
    # The holder is gone, but processes that it started still hold the lock: end them, they are boxstrap's.
    end_leftovers
    [ "$SECONDS" -lt "$until" ] || return 1
    [ -n "$said" ] || write_event setup wait code=busy
    said=yes
    sleep 0.2
  done
  # A setup that was killed left the lock free, but perhaps a uv or a git that is still writing.
  read_holder
  end_leftovers
  find_identity $$
  printf '%s\n' "$_identity" "$SCRIPT_ID" "$SETUP_ID" "$REPO_NAME ${REPO_COMMIT:0:12}" >"$BOX_HOME/lock"
}

read_holder() {
  HOLDER='' HOLDER_SCRIPT='' HOLDER_SETUP=''
  { read -r HOLDER && read -r HOLDER_SCRIPT && read -r HOLDER_SETUP; } <"$BOX_HOME/lock" || :
}

# Ends what a killed setup left running, once the box has a Python: see onbox/work/lock.py.
end_leftovers() { [ -z "$HOLDER_SETUP" ] || alive "$HOLDER" || onbox work.lock "$BOX_HOME" "$TRAIN_GRACE" || :; } 2>/dev/null

# end_processes PROCESS...: ends them, and what they started, as a run is ended. Before a box has a Python only programs
# of ours can be at work: they are just asked, and the next setup ends what they leave.
end_processes() {
  [ "$#" -eq 0 ] || onbox run_processes reap "$TRAIN_GRACE" "$@" || kill -TERM "${@%% *}" || :
} 2>/dev/null
