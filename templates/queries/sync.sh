# shellcheck shell=bash disable=SC2034,SC2154 # set here, read elsewhere; the variables stand in front when it is sent
# sync: states of the repository from standard input, each received into the store and placed in its folder. Of each
# comes a line `BASE SNAPSHOT COMMIT TREE BRANCH BYTES`, then as many bytes for receive-pack. BASE is what its objects
# build on; `-` is none, and for BYTES all that comes.

tell() { printf '%s\t%s\n' "$1" "${2-}" >&6; }
emit() { [ "$1" != warn ] || tell warn "${2#code=}"; }

# The run that uses this tree, if one does: its files stay as they are.
in_use() { run=$(alive_in "$BOX_HOME" "$REPO_KEY" "$REPO_DIR") && tell alive "$run"; }

# Objects that build on what isn't here are not taken: the other side makes others of what is.
receive() {
  local said
  said=$(umask 077 && receive_objects "$REPO_STORE" 2>&1 >/dev/null)
  ! store_git rev-parse -q --verify "refs/boxstrap/$REPO_SNAPSHOT^{commit}" >/dev/null 2>&1 || return 0
  if [ "$base" = - ] || [ -e "$REPO_STORE.refused" ]; then
    said=${said:0:500}
    tell refused "${said//$'\n'/ }"
  else
    tell lacks "$base"
    store_git for-each-ref --count=20 --sort=-creatordate --format='have%09%(objectname)' refs/boxstrap >&6
  fi
  return 1
}

# The setup's own lock. What stands in it stays: it says which setup was the last.
hold_box() {
  exec 9>>"$BOX_HOME/lock"
  read_holder
  flock -n 9 || flock -w "$WAIT_S" 9 || { tell busy "$HOLDER_SETUP" && return 1; }
  read_holder
  is_over || end_leftovers
}

# Whether the last setup ended by itself: then it left nothing behind.
is_over() { [[ $(<"$BOX_HOME/setups/$HOLDER_SETUP/status.json") == *'"state":"over"'* ]]; } 2>/dev/null

# What a kill or a bad disk did is looked for where a switch of files was cut short, and where placing fails; a
# setup always looks. Never call this left of `&&` or in an `if`: that would switch `set -e` off inside.
place() {
  local placed=() rc
  STEP_LOG=$NOTES/sync.log STEP_CODE=$NOTES/sync.code
  mapfile -t placed <"$NOTES/repo.placed"
  for MENDS in '' yes; do
    if [ -z "$MENDS" ] && [ -e "$NOTES/repo.switch" ]; then continue; fi
    : >"$STEP_CODE"
    (set -e; place_snapshot; stamp_placed) >"$STEP_LOG" 2>&1 </dev/null
    rc=$?
    [ "$rc" -ne 0 ] || break
  done
  if [ "$rc" -eq 0 ]; then
    store_git diff-tree -r --no-renames --name-status "${placed[${#placed[@]} - 1]}" "$REPO_SNAPSHOT" -- 2>/dev/null | head -n 2000 >&6
    tell placed "$REPO_SNAPSHOT"
    return
  fi
  [ -s "$STEP_CODE" ] || classify_error "$STEP_LOG" >"$STEP_CODE"
  tail -n 40 "$STEP_LOG" | while IFS= read -r line; do tell log "$line"; done
  tell failed "$(<"$STEP_CODE")"
}

# The next setup finds the step `repo` done, if it was before.
stamp_placed() {
  local stamp state=$REPO_COMMIT
  [ -s "$NOTES/repo.ok" ] || return 0
  stamp=$(<"$NOTES/repo.ok")
  [ "$REPO_SNAPSHOT" = "$REPO_COMMIT" ] || state+=+$REPO_SNAPSHOT
  write_file "$NOTES/repo.ok" 600 "${stamp%% *} $state ${stamp#* * }"$'\n'
}

take_state() {
  [ -n "$SET_UP" ] || { tell fresh "$REPO_DIR" && return; }
  ! in_use || return
  receive || return
  (
    hold_box || exit
    ! in_use || exit
    place
  )
}

eval "look_and_$(declare -f mend_tree)"
mend_tree() {
  if [ -n "$MENDS" ]; then look_and_mend_tree; fi
}

# Before anything comes, since the way here takes its time.
prepare() {
  [ -d "$REPO_DIR/.git" ] && [ -e "$NOTES/repo.placed" ] || return
  SET_UP=yes
  open_store "$REPO_STORE" "$OBJECT_FORMAT"
  umask 022
}

exec 6>&1
begin_script
set +e
MANAGERS=() SET_UP=''
prepare
if [ -n "$STATE" ]; then
  read -r base REPO_SNAPSHOT REPO_COMMIT REPO_TREE REPO_BRANCH bytes <<<"$STATE"
  [ "$REPO_BRANCH" != - ] || REPO_BRANCH=
  take_state < <(base64 -d <<<"$OBJECTS")
  tell over
  exit
fi
while read -r base REPO_SNAPSHOT REPO_COMMIT REPO_TREE REPO_BRANCH bytes; do
  [ "$REPO_BRANCH" != - ] || REPO_BRANCH=
  if [ "$bytes" = - ]; then
    take_state
    tell over
    exit
  fi
  exec 8< <(head -c "$bytes")
  take_state <&8
  cat <&8 >/dev/null
  exec 8<&-
  tell over
done
