# shellcheck shell=bash disable=SC2034,SC2154,SC2317 # set here, read elsewhere; the variables stand in front when it is sent
# sent_state: a state of the repository that comes outside a setup, received into the store and placed in its folder.
# What becomes of it is reported on descriptor 6, one line each: a word, a tab and a value.

answer() { printf '%s\t%s\n' "$1" "${2-}" >&6; }

# read_header LINE: what is coming. `base` is what its objects build on, or `-`; `bytes` may be `-`: all that comes.
read_header() {
  read -r base REPO_SNAPSHOT REPO_COMMIT REPO_TREE REPO_BRANCH bytes <<<"$1"
  [ "$REPO_BRANCH" != - ] || REPO_BRANCH=
}

# Called before anything arrives, since sending takes time. Placing reports its cautions on descriptor 6.
await_states() {
  open_store "$REPO_STORE" "$OBJECT_FORMAT"
  umask 022
  emit() { case $1 in 'warn code='*) answer warn "${1#*=}" ;; esac }
}

# Objects that build on something that isn't on the box are refused: the other side makes others from what is.
receive() {
  local said
  said=$(umask 077 && receive_objects "$REPO_STORE" 2>&1 >/dev/null)
  ! store_git rev-parse -q --verify "refs/boxstrap/$REPO_SNAPSHOT^{commit}" >/dev/null 2>&1 || return 0
  if is_disk_full; then
    answer failed disk-full
  elif [ "$base" = - ] || [ -e "$REPO_STORE.refused" ]; then
    said=${said:0:500}
    answer refused "${said//$'\n'/ }"
  else
    answer lacks "$base"
    store_git for-each-ref --count=20 --sort=-creatordate --format='have%09%(objectname)' refs/boxstrap >&6
  fi
  return 1
}

# On a full disk git may not say so, and no code can be noted.
is_disk_full() {
  local free=1
  read -r _ _ _ free _ < <(df -Pm "$BOX_HOME" | tail -n 1)
  [ "$free" = 0 ]
}

# Takes the setup's own lock. Its content stays: it says which setup was the last.
hold_box() {
  exec 9>>"$BOX_HOME/lock"
  read_holder
  # Leftovers of a setup may still hold it, although nobody is at work.
  flock -n 9 || { end_leftovers && flock -n 9; } ||
    { answer waits "$HOLDER_SETUP" && flock -w "$WAIT_S" 9; } || { answer busy "$HOLDER_SETUP" && return 1; }
  read_holder
  is_over || end_leftovers
}

# Whether the last setup ended on its own: then it left nothing behind.
is_over() { [[ $(<"$BOX_HOME/setups/$HOLDER_SETUP/status.json") == *'"state":"over"'* ]]; } 2>/dev/null

# Damage from a kill or a bad disk is looked for only if a switch of files was cut short, or placing fails; a setup
# always looks.
place_state() {
  local word
  STEP_LOG=$NOTES/sync.log STEP_CODE=$NOTES/sync.code
  for word in switch repair; do
    if [ "$word" = switch ] && [ -e "$NOTES/repo.switch" ]; then continue; fi
    : >"$STEP_CODE"
    place_tree "$word" 2>"$STEP_LOG" | report >&6
    [ "${PIPESTATUS[0]}" -ne 0 ] || { stamp_placed && answer placed "$REPO_SNAPSHOT" && return; }
  done
  answer_failure
  return 1
}

# Reports its code, and the last lines of the log.
answer_failure() {
  local code
  code=$(<"$STEP_CODE")
  if [ -z "$code" ] && is_disk_full; then code=disk-full; fi
  tail -n 40 "$STEP_LOG" | while IFS= read -r line; do answer log "$line"; done
  answer failed "${code:-$(classify_error "$STEP_LOG")}"
}

# Updates the stamp of the step `repo`, if there is one: the next setup finds the step done.
stamp_placed() {
  local stamp state=$REPO_COMMIT
  [ -s "$NOTES/repo.ok" ] || return 0
  stamp=$(<"$NOTES/repo.ok")
  [ "$REPO_SNAPSHOT" = "$REPO_COMMIT" ] || state+=+$REPO_SNAPSHOT
  write_file "$NOTES/repo.ok" 600 "${stamp%% *} $state ${stamp#* * }"$'\n'
}

