# shellcheck shell=bash
# repo: the profile's commit, checked out where the profile says.

inputs_repo() { inputs v1 "$REPO_COMMIT" "$REPO_DIR" "$REPO_URL" "$GIT_USER_NAME" "$GIT_USER_EMAIL"; }

check_repo() {
  local seen cut
  # The tree's id too: git opens the pack for it, and sees whether that is whole.
  seen=$(work_git rev-parse HEAD 'HEAD^{tree}' 2>/dev/null) && [ "${seen%%$'\n'*}" = "$REPO_COMMIT" ] &&
    identity_right && [ ! -e "$(note_of switch)" ] || return
  store_right && tree_right || return # full
  cut=$(cut_files 2>/dev/null) && [ -z "$cut" ] # full
}

apply_repo() {
  [ "$REPO_ACCESS" = url ] || await_commit # full
  [ "$REPO_ACCESS" != url ] || fetch_by_url
  rm -rf -- "$REPO_STORE".new.* "$REPO_STORE".damaged.* "$REPO_STORE"/*.new.*
  if is_strange; then
    adopt_tree
    update_in_place
  elif [ -e "$REPO_DIR/.git" ]; then
    mend_tree # full
    update_in_place
  else
    check_out_whole
  fi
  set_identity
  note_repo
}

# Its ref comes last: objects that are there without it may still be on their way.
has_commit() {
  store_right || return # full
  store_git rev-parse -q --verify "refs/boxstrap/$REPO_COMMIT^{commit}" >/dev/null 2>&1
}

# The commit comes over the login of whoever started this; that link may break and come back.
await_commit() {
  local until=$((SECONDS + COMMIT_PATIENCE))
  until has_commit; do
    [ "$SECONDS" -lt "$until" ] ||
      fail commit-missing "commit $REPO_COMMIT never arrived" "run the same command again: it goes on here"
    alive "$(cat "$REPO_STORE.sender" 2>/dev/null)" && until=$((SECONDS + COMMIT_PATIENCE))
    # A refusal from before this setup says nothing of it.
    [ ! "$REPO_STORE.refused" -nt "$SETUP_DIR/pid" ] ||
      fail "$(<"$REPO_STORE.refused")" "git could not store commit $REPO_COMMIT here"
    sleep 0.05
  done
}

fetch_by_url() {
  has_commit && return
  store_right || rm -rf -- "$REPO_STORE" # full
  rm -rf -- "$REPO_STORE".new.*
  [ -d "$REPO_STORE" ] ||
    { box_git init -q --bare --template= "$REPO_STORE.new.$BASHPID" && mv -T "$REPO_STORE.new.$BASHPID" "$REPO_STORE"; }
  free_git_locks "$REPO_STORE" "$REPO_STORE" || fail git-busy "another git is at work in $REPO_STORE" # full
  # Whom ssh may believe that it is the host: nobody whom the box's image or its network vouches for.
  printf '%s\n' "${KNOWN_HOSTS[@]}" | write_if_changed "$BOX_HOME/known_hosts" 644
  with_retries fetch_commit || not_fetched "$(classify_error "$STEP_LOG")"
  # What came with its branch has no ref of its own yet.
  store_git update-ref "refs/boxstrap/$REPO_COMMIT" "$REPO_COMMIT" || :
  has_commit || fail ref-missing "$REPO_URL has no commit $REPO_COMMIT"
}

# A server may refuse to give a bare commit: then its branches and tags hold it.
fetch_commit() {
  with_token store_git fetch -q --no-tags --end-of-options "$REPO_URL" "+$REPO_COMMIT:refs/boxstrap/$REPO_COMMIT" && return
  ! is_network_error &&
    with_token store_git fetch -q --end-of-options "$REPO_URL" '+refs/heads/*:refs/fetched/heads/*' '+refs/tags/*:refs/fetched/tags/*'
}

not_fetched() {
  case $1 in command-failed) set -- clone-failed ;; esac
  fail "$1" "$REPO_URL could not be fetched from this box" \
    "access: over-ssh sends it from your machine instead, and needs no credential here"
}

# Somebody else's tree is taken only where they say so. Nothing in it is repaired: that may be their work.
adopt_tree() {
  # A file named .git is a worktree's or a submodule's: its repository lies elsewhere.
  [ -d "$REPO_DIR/.git" ] ||
    fail tree-in-the-way "$REPO_DIR is there already and is not a git repository" \
      "move it away on the box, or choose another box.workdir"
  [ "${ADOPT:-no}" = yes ] ||
    fail tree-not-ours "boxstrap did not make $REPO_DIR" "--adopt takes it; or move it away, or choose another box.workdir"
  [ -z "$(git_lock "$REPO_DIR/.git")" ] || fail git-busy "another git is at work in $REPO_DIR" # full
  : >"$(note_of adopted)"
}

check_out_whole() {
  local tmp="$BOX_HOME/trees/boxstrap-$BASHPID" format=()
  [ "${#REPO_COMMIT}" -ne 64 ] || format=(--object-format=sha256) # full
  [ "$REPO_DIR" = "$WORKDIR/$REPO_NAME" ] || caution own-folder "another repository of this box has $WORKDIR/$REPO_NAME: this one lies in $REPO_DIR"
  [ ! -e "$REPO_DIR" ] || rmdir -- "$REPO_DIR" || fail tree-in-the-way "$REPO_DIR is in the way"
  mkdir -p "${tmp%/*}"
  rm -f "$(note_of adopted)"
  box_git init -q --template= ${format[@]+"${format[@]}"} "$tmp"
  # On the same disk the objects are linked, not copied; else, or of a shallow history, git fetches.
  cp -Rl "$REPO_STORE/objects/." "$tmp/.git/objects/" 2>/dev/null || :
  rm -f -- "$tmp"/.git/objects/pack/*.keep
  if [ -f "$REPO_STORE/shallow" ] || ! box_git -C "$tmp" cat-file -e "$REPO_COMMIT^{commit}" 2>/dev/null; then
    fetch_from_store "$tmp"
  fi
  point_origin "$tmp"
  if [ -n "$REPO_BRANCH" ]; then
    box_git -C "$tmp" checkout -q -B "$REPO_BRANCH" "$REPO_COMMIT" --
  else
    box_git -C "$tmp" checkout -q --detach "$REPO_COMMIT" --
  fi
  mv -T "$tmp" "$REPO_DIR"
  rmdir -- "${tmp%/*}" # as after a kill, whose leavings the next setup sweeps
}

fetch_from_store() {
  box_git -C "$1" fetch -q --no-tags --update-shallow "$REPO_STORE" "+refs/boxstrap/$REPO_COMMIT:refs/boxstrap/next"
}

# What was edited, added or committed on the box is never overwritten: git refuses, and we say what it found.
update_in_place() {
  fetch_from_store "$REPO_DIR" ||
    fail git-damaged "$REPO_DIR/.git is damaged: git can't add the commit to it" "move $REPO_DIR away on the box, then set up again"
  must_know HEAD
  [ -z "$REPO_BRANCH" ] || must_know "refs/heads/$REPO_BRANCH"
  printf '%s\n' "$REPO_COMMIT" | write_file "$(note_of switch)" 600
  if ! switch_to_commit; then
    rm -f "$(note_of switch)"
    grep -q 'untracked working tree files would be' "$STEP_LOG" &&
      fail untracked-in-the-way "files that git does not track lie where the new commit has files (listed above)" \
        "on the box: move them away; then set up again"
    fail box-edits "files in $REPO_DIR were edited on the box, and the new commit changes them (listed above)" \
      "on the box: commit or stash them, or discard them with \`git checkout HEAD -- FILE\`; then set up again"
  fi
  rm -f "$(note_of switch)"
  point_origin "$REPO_DIR"
}

# must_know REF: it holds nothing but what was sent to this box, or what the new commit builds on.
must_know() {
  local old
  old=$(work_git rev-parse -q --verify "$1^{commit}") || return 0
  [ "$old" != "$(work_git rev-parse -q --verify refs/boxstrap/placed)" ] || return 0
  ! store_git show-ref -q --verify "refs/boxstrap/$old" || return 0
  if ! work_git merge-base --is-ancestor "$old" "$REPO_COMMIT"; then
    work_git log --oneline -n 10 "$REPO_COMMIT..$old" >&2
    fail box-commits "the box has commits of its own in $REPO_DIR, on ${1#refs/heads/} (listed above)" \
      "fetch them from the box, or leave them there on a branch of their own; they stay as they are"
  fi
}

# Ignored files too are the box's own, and may be worth more than all others.
switch_to_commit() {
  if [ -n "$REPO_BRANCH" ]; then
    work_git checkout -q --no-overwrite-ignore -B "$REPO_BRANCH" "$REPO_COMMIT" --
  else
    work_git checkout -q --no-overwrite-ignore --detach "$REPO_COMMIT" --
  fi
}

# `origin` is the real one, without a user in it; the store never shows. No remote is ever removed, and in an
# adopted tree none is changed.
point_origin() {
  if [ -n "$REPO_URL" ] && [ ! -e "$(note_of adopted)" ]; then
    box_git -C "$1" remote set-url origin "$REPO_URL" 2>/dev/null || box_git -C "$1" remote add origin "$REPO_URL"
  fi
  box_git -C "$1" update-ref refs/boxstrap/placed "$REPO_COMMIT"
  # What a fetch from the store left: the tree is the same, whichever way the commit came in.
  box_git -C "$1" update-ref -d refs/boxstrap/next
  rm -f -- "$1/.git/FETCH_HEAD"
}

identity_right() {
  local set
  set=$'\n'$(work_git config --local --get-regexp '^user[.]')$'\n'
  { [ -z "$GIT_USER_NAME" ] || [[ $set == *$'\n'"user.name $GIT_USER_NAME"$'\n'* ]]; } &&
    { [ -z "$GIT_USER_EMAIL" ] || [[ $set == *$'\n'"user.email $GIT_USER_EMAIL"$'\n'* ]]; }
}

# In this repository alone; the box's own settings are not ours.
set_identity() {
  [ -z "$GIT_USER_NAME" ] || work_git config --local user.name "$GIT_USER_NAME"
  [ -z "$GIT_USER_EMAIL" ] || work_git config --local user.email "$GIT_USER_EMAIL"
}
