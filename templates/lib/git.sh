# shellcheck shell=bash
# git: how it is run on this box. What places files asks it in Python: onbox/work/place.py.

# Strangers' hooks and filters don't run, git asks nothing, and only these transports are allowed.
box_git() {
  local ssh="ssh -o BatchMode=yes -o ConnectTimeout=20 -o ServerAliveInterval=10 -o StrictHostKeyChecking=yes -o UserKnownHostsFile='$BOX_HOME/known_hosts' -o GlobalKnownHostsFile=/dev/null"
  GIT_SSH_COMMAND=$ssh GIT_TERMINAL_PROMPT=0 GIT_ALLOW_PROTOCOL=file:https:ssh:http:git GIT_LFS_SKIP_SMUDGE=1 GIT_OPTIONAL_LOCKS=0 \
    git -c http.lowSpeedLimit=1 -c http.lowSpeedTime=20 -c core.hooksPath=/dev/null -c checkout.workers=0 -c core.quotePath=true -c init.defaultBranch=main \
    -c gc.auto=0 -c maintenance.auto=false -c core.fsmonitor=false \
    -c safe.directory="$REPO_STORE" -c safe.directory="$REPO_DIR" -c safe.directory="$REPO_DIR/.git" "$@" 3>&- 9>&-
}
work_git() { box_git -C "$REPO_DIR" "$@"; }
store_git() { box_git --git-dir="$REPO_STORE" "$@"; }
# The token that a door asked for is only in the environment of this call; the helper that git asks does not contain it.
with_token() {
  # A host that trickles is given up; a Mac has no such program.
  # shellcheck disable=SC2317 # box_git calls it
  ! have timeout || git() { timeout 14400 git "$@"; }
  if [ -z "$TOKEN" ]; then
    "$@"
    return
  fi
  local host=${REPO_URL#*://}
  # Another host, to which the repository's may redirect, gets no answer.
  # shellcheck disable=SC2016 # git runs it
  write_if_changed "$PRIVATE/askpass" 700 $'#!/bin/sh\ncase $1 in "Username for \'$SCHEME://$HOST\': ") echo x-access-token ;; "Password for \'$SCHEME://x-access-token@$HOST\': ") echo "$BOXSTRAP_TOKEN" ;; *) exit 1 ;; esac\n'
  BOXSTRAP_TOKEN=$TOKEN SCHEME=${REPO_URL%%://*} HOST=${host%%/*} GIT_ASKPASS=$PRIVATE/askpass "$@"
}

store_right() { packs_right "$REPO_STORE/packs" "$REPO_STORE/objects/pack"; }

# Notes what identifies this repository, and which folder is its own, as soon as that is known (lib/repository.sh).
note_repository() {
  local key
  case " ${STEPS[*]} " in *' repo '*) ;; *) return 0 ;; esac
  [ -d "$NOTES" ] || mkdir -p "$NOTES"
  [ -z "$REPO_ROOT" ] || write_if_changed "$NOTES/repo.root" 600 "$REPO_ROOT"$'\n'
  is_strange || write_if_changed "$NOTES/repo.dir" 600 "$REPO_DIR"$'\n'
  for key in "$SENT_KEY" "$REPO_USUAL_KEY"; do
    # A key that a repository of this box has as its own stays its own.
    case $key in '' | "$REPO_KEY") continue ;; esac
    if [ -e "$BOX_HOME/steps/$key/setup.sh" ] || [ -e "$BOX_HOME/runs/$key" ]; then continue; fi
    mkdir -p "$BOX_HOME/steps/$key"
    write_if_changed "$BOX_HOME/steps/$key/repo.key" 600 "$REPO_KEY"$'\n'
  done
}

# Whether this repository's folder contains something that boxstrap did not make.
is_strange() {
  { [ -e "$REPO_DIR" ] || [ -L "$REPO_DIR" ]; } &&
    [ ! -e "$NOTES/repo.ok" ] && [ ! -e "$NOTES/repo.placed" ] && [ ! -d "$RUNS" ] &&
    ! placed_by_us "$REPO_DIR" && [ -n "$(ls -A -- "$REPO_DIR" 2>/dev/null)" ]
}

# place_tree WORD: asks onbox/work/place.py, which knows what each WORD means.
place_tree() {
  local prepare=
  [[ " ${STEPS[*]} " != *' prepare '* ]] || prepare=yes
  printf '%s\0' "home=$BOX_HOME" "key=$REPO_KEY" "main=$MAIN_DIR" "usual=$WORKDIR/$REPO_NAME" "tree=$REPO_DIR" \
    "number=$TREE_NUMBER" "commit=$REPO_COMMIT" "snapshot=$REPO_SNAPSHOT" "branch=$REPO_BRANCH" "url=$REPO_URL" \
    "adopt=${ADOPT-}" "user.name=$GIT_USER_NAME" "user.email=$GIT_USER_EMAIL" "tag_objects=${TAG_OBJECTS-}" "venv=$VENV" \
    "prepare=$prepare" ${REPO_TAGS[@]+"${REPO_TAGS[@]/#/tag=}"} ${SHARED[@]+"${SHARED[@]/#/shared=}"} \
    ${RESULTS[@]+"${RESULTS[@]/#/result=}"} | onbox work.place "$1" 3>&-
}
