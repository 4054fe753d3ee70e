# shellcheck shell=bash disable=SC2034,SC2153 # set here, read elsewhere; the capitals are rendered
# access: may this box read the repository by its address? A private one asks for a token, kept in memory alone.

box_git() {
  GIT_TERMINAL_PROMPT=0 GIT_ALLOW_PROTOCOL=https:http GIT_LFS_SKIP_SMUDGE=1 BOXSTRAP_TOKEN=$TOKEN GIT_ASKPASS=$PRIVATE/askpass \
    git -c core.hooksPath=/dev/null -c credential.helper= -c advice.detachedHead=false -c init.defaultBranch=main \
    -c safe.directory="$REPO_DIR" "$@"
}

# The helper that git asks holds no secret: it says what this call's environment has.
write_askpass() {
  # shellcheck disable=SC2016 # git runs it
  printf '#!/bin/sh\ncase $1 in U*) echo x-access-token ;; *) echo "$BOXSTRAP_TOKEN" ;; esac\n' | write_file "$PRIVATE/askpass" 700
}

can_read() { box_git ls-remote -q --end-of-options "$REPO_URL" HEAD >/dev/null 2>"$PRIVATE/said"; }

# Before anything else is done: may this box read the repository?
gain_access() {
  check_repo && return
  write_askpass
  can_read && return
  TOKEN=$(box_value GIT_TOKEN)
  if [ -n "$TOKEN" ] && can_read; then return; fi
  grep -qiE 'username|authentication|not found|40[134]' "$PRIVATE/said" ||
    refuse "$REPO_URL can't be reached from this box ($(tail -n 1 "$PRIVATE/said"))"
  ask_for "a token that may read $REPO_URL" ||
    refuse "$REPO_URL is private: put a token into GIT_TOKEN of this box's environment, or paste this into a terminal"
  TOKEN=$VALUE
  can_read || refuse "the token does not open $REPO_URL"
}

check_repo() { [ "$(box_git -C "$REPO_DIR" rev-parse -q --verify HEAD 2>/dev/null)" = "$REPO_COMMIT" ]; }
