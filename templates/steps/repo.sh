# shellcheck shell=bash
# repo: the commit of this setup, checked out into the repository's folder below box.workdir.

inputs_repo() {
  local placed=$REPO_COMMIT
  [ "$REPO_SNAPSHOT" = "$REPO_COMMIT" ] || placed+=+$REPO_SNAPSHOT
  inputs v1 "$placed" "$REPO_DIR" "$REPO_URL" "$GIT_USER_NAME" "$GIT_USER_EMAIL"
  [ "${#REPO_TAGS[@]}" -eq 0 ] || { digest <(printf '%s\n' "${REPO_TAGS[@]}") && INPUTS+="$DIGEST "; }
}

check_repo() {
  [ -n "${SETUP_DIR-}" ] || { place_tree plan && return; } || return
  place_tree check | report
  [ "${PIPESTATUS[0]}" = 0 ]
}

apply_repo() {
  [ "$REPO_ACCESS" = url ] || await_commit
  [ "$REPO_ACCESS" != url ] || fetch_by_url
  rm -rf -- "$REPO_STORE".new.* "$REPO_STORE".damaged.* "$REPO_STORE"/*.new.*
  await_python
  place_tree setup | report
  [ "${PIPESTATUS[0]}" = 0 ]
  # The first commit was not known before, and the box fetched it itself.
  [ -s "$BOX_HOME/steps/$REPO_KEY/repo.root" ] || root_of "$REPO_STORE" | write_file "$BOX_HOME/steps/$REPO_KEY/repo.root" 600
}

# What the step `agent` brings where the box has no Python, or one that is too old.
await_python() {
  until [ -x "$BOX_HOME/agent/bin/python" ] || python3 -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null; do
    case " ${STEPS[*]} " in *' agent '*) sleep 0.1 ;; *) fail no-python 'no Python is here that could place files' ;; esac
  done
}

# The ref comes last: objects that are there without it may still be arriving.
has_commit() {
  # Asked twenty times a second, on a core that others need: git is not started if there can be no ref.
  [ -e "$REPO_STORE/refs/boxstrap/$REPO_SNAPSHOT" ] || [ -e "$REPO_STORE/packed-refs" ] || [ -d "$REPO_STORE/reftable" ] || return
  store_right || return
  store_git rev-parse -q --verify "refs/boxstrap/$REPO_SNAPSHOT^{commit}" >/dev/null 2>&1
}

# The commit comes over the login of the machine that started this; that link may break and come back.
await_commit() {
  local nobody=
  begin_wait
  until has_commit; do
    may_arrive commit "$REPO_STORE.sender" || has_commit || nobody=1
    # The cause first: who sends gives up after it. A refusal from before this setup does not count.
    [ ! "$REPO_STORE.refused" -nt "$SETUP_DIR/pid" ] ||
      fail "$(<"$REPO_STORE.refused")" "git could not store commit $REPO_SNAPSHOT here"
    [ -z "$nobody" ] ||
      fail commit-missing "commit ${REPO_COMMIT:0:12} never arrived" "run the same command again: it continues here"
    sleep 0.05
  done
}

fetch_by_url() {
  has_commit && return
  store_right || rm -rf -- "$REPO_STORE"
  rm -rf -- "$REPO_STORE".new.*
  [ -d "$REPO_STORE" ] ||
    { box_git init -q --bare --template= "$REPO_STORE.new.$BASHPID" && mv -T "$REPO_STORE.new.$BASHPID" "$REPO_STORE"; }
  await_python
  onbox work.repair "$REPO_STORE" || fail git-busy "another git is at work in $REPO_STORE"
  # The only host keys that ssh may trust: none from the box's image or its network.
  write_if_changed "$BOX_HOME/known_hosts" 644 "$(printf '%s\n' "${KNOWN_HOSTS[@]}")"$'\n'
  with_retries fetch_commit || not_fetched "$(classify_error "$STEP_LOG")"
  # A commit that came with its branch has no ref of its own yet.
  store_git update-ref "refs/boxstrap/$REPO_COMMIT" "$REPO_COMMIT" || :
  has_commit || fail ref-missing "$REPO_URL has no commit $REPO_COMMIT"
}

# A server may refuse to send a bare commit: then it comes with the branches and tags.
fetch_commit() {
  with_token store_git fetch -q --no-tags --end-of-options "$REPO_URL" "+$REPO_COMMIT:refs/boxstrap/$REPO_COMMIT" && return
  ! is_network_error &&
    with_token store_git fetch -q --end-of-options "$REPO_URL" '+refs/heads/*:refs/fetched/heads/*' '+refs/tags/*:refs/fetched/tags/*'
}

not_fetched() {
  case $1 in command-failed) set -- clone-failed ;; esac
  case $1 in dependency-private) set -- clone-failed ;; esac
  fail "$1" "$REPO_URL could not be fetched from this box" \
    "git.access: over-ssh sends it from your machine instead, and needs no credential here"
}
