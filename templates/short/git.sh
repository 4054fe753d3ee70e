# shellcheck shell=bash disable=SC2153 # the capitals are rendered
# git: the commit by its public address, checked out.

apply_repo() {
  local tmp=$REPO_DIR
  if [ ! -e "$REPO_DIR/.git" ]; then
    [ ! -e "$REPO_DIR" ] || rmdir "$REPO_DIR" 2>/dev/null || fail tree-in-the-way "$REPO_DIR is there already and is no git repository"
    tmp=$REPO_DIR.tmp.$BASHPID
    rm -rf -- "$REPO_DIR".tmp.*
    box_git init -q --template= "$tmp"
    box_git -C "$tmp" remote add origin "$REPO_URL"
  fi
  # A server may refuse to give a bare commit: then its branches and tags hold it.
  box_git -C "$tmp" fetch -q --end-of-options origin "$REPO_COMMIT" 2>/dev/null ||
    with_retries box_git -C "$tmp" fetch -q --tags --end-of-options origin '+refs/heads/*:refs/remotes/origin/*' ||
    fail clone-failed "$REPO_URL could not be fetched"
  box_git -C "$tmp" cat-file -e "$REPO_COMMIT^{commit}" || fail ref-missing "$REPO_URL has no commit $REPO_COMMIT"
  keep_own_commits "$tmp"
  # git refuses where files that were edited here are in the way.
  if [ -n "$REPO_BRANCH" ]; then
    box_git -C "$tmp" checkout -q -B "$REPO_BRANCH" "$REPO_COMMIT" -- || fail box-edits "files were edited in $REPO_DIR"
  else
    box_git -C "$tmp" checkout -q --detach "$REPO_COMMIT" -- || fail box-edits "files were edited in $REPO_DIR"
  fi
  box_git -C "$tmp" update-ref refs/boxstrap/placed "$REPO_COMMIT"
  [ -z "$GIT_USER_NAME" ] || box_git -C "$tmp" config user.name "$GIT_USER_NAME"
  [ -z "$GIT_USER_EMAIL" ] || box_git -C "$tmp" config user.email "$GIT_USER_EMAIL"
  [ "$tmp" = "$REPO_DIR" ] || mv -T "$tmp" "$REPO_DIR"
}

keep_own_commits() {
  local old placed
  old=$(box_git -C "$1" rev-parse -q --verify HEAD || :)
  placed=$(box_git -C "$1" rev-parse -q --verify refs/boxstrap/placed || :)
  [ -z "$old" ] || [ "$old" = "$placed" ] || box_git -C "$1" merge-base --is-ancestor "$old" "$REPO_COMMIT" ||
    fail box-commits "the box has commits of its own in $REPO_DIR"
}
