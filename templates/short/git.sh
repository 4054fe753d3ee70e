# shellcheck shell=bash disable=SC2153 # the capitals are rendered
# git: the commit by its public address, checked out.

# The whole script's notes tell which repository of this box it is, and where it lies.
find_repository() {
  local found
  REPO_KEY=$(cat "$BOX_HOME/steps/$REPO_KEY/repo.key" 2>/dev/null || printf %s "$REPO_KEY")
  found=$(grep -ls "^$REPO_ROOT" "$BOX_HOME"/steps/*/repo.root | head -n 1)
  NOTES=${found%/*}
  NOTES=${NOTES:-$BOX_HOME/steps/$REPO_KEY} REPO_KEY=${NOTES##*/} RUNS=$BOX_HOME/runs/$REPO_KEY
  REPO_DIR=$(cat "$NOTES/repo.dir" 2>/dev/null || printf %s "$WORKDIR/$REPO_NAME")
}

apply_repo() {
  local tmp=$REPO_DIR
  if [ ! -e "$NOTES" ] && [ ! -e "$RUNS" ] || [ ! -e "$REPO_DIR/.git" ]; then
    [ ! -e "$REPO_DIR" ] || rmdir "$REPO_DIR" || fail tree-in-the-way "$REPO_DIR is not known to be this repository's"
    rm -rf -- "$BOX_HOME/trees"
    tmp=$BOX_HOME/trees/boxstrap-new
    mkdir -p "${tmp%/*}"
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
  box_git -C "$tmp" checkout -q ${REPO_BRANCH:+-B "$REPO_BRANCH"} "$REPO_COMMIT" -- || fail box-edits "files were edited in $REPO_DIR"
  box_git -C "$tmp" update-ref refs/boxstrap/placed "$REPO_COMMIT"
  [ -z "$GIT_USER_NAME" ] || box_git -C "$tmp" config user.name "$GIT_USER_NAME"
  [ -z "$GIT_USER_EMAIL" ] || box_git -C "$tmp" config user.email "$GIT_USER_EMAIL"
  [ "$tmp" = "$REPO_DIR" ] || mv -T "$tmp" "$REPO_DIR"
  mkdir -p "$NOTES"
  printf '%s\n' "$REPO_DIR" >"$NOTES/repo.dir"
}

keep_own_commits() {
  local old placed
  old=$(box_git -C "$1" rev-parse -q --verify HEAD || :)
  placed=$(box_git -C "$1" rev-parse -q --verify refs/boxstrap/placed || :)
  [ -z "$old" ] || [ "$old" = "$placed" ] || box_git -C "$1" merge-base --is-ancestor "$old" "$REPO_COMMIT" ||
    fail box-commits "the box has commits of its own in $REPO_DIR"
}
