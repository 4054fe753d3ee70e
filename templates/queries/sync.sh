# shellcheck shell=bash disable=SC2034,SC2154 # set here, read elsewhere; the variables stand in front when it is sent
# sync: states of the repository from standard input, each received into the store and placed in its folder. Each is
# a line `BASE SNAPSHOT COMMIT TREE BRANCH BYTES`, then that many bytes for receive-pack.
# library: stage0 base setup repository events errors lock packs git trees store sent_state queries/program

# Reports the run that uses this tree, if one does: its files stay as they are.
in_use() { run=$(alive_in "$BOX_HOME" "$REPO_KEY" "$REPO_DIR") && answer alive "$run"; }

take_state() {
  [ -n "$SET_UP" ] || { answer fresh "$REPO_DIR" && return; }
  ! in_use || return
  receive || return
  (
    hold_box || exit
    ! in_use || exit
    place_state
  )
}

exec 6>&1
begin_script
set +e
SET_UP=''
if is_tree; then
  SET_UP=yes
  await_states
fi
if [ -n "$STATE" ]; then
  read_header "$STATE"
  take_state < <(base64 -d <<<"$OBJECTS")
  answer over
  exit
fi
while read -r line; do
  read_header "$line"
  if [ "$bytes" = - ]; then
    take_state
    answer over
    exit
  fi
  exec 8< <(head -c "$bytes")
  take_state <&8
  cat <&8 >/dev/null
  exec 8<&-
  answer over
done
