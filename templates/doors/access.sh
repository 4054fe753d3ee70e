# shellcheck shell=bash disable=SC2034,SC2153 # set here, read elsewhere; the capitals are rendered
# access: can this box read the repository at its URL? A private one needs a token, which is kept only in memory.

can_read() {
  GIT_SSH_COMMAND="ssh -o BatchMode=yes -o ConnectTimeout=20 -o StrictHostKeyChecking=yes -o UserKnownHostsFile='$BOX_HOME/known_hosts' -o GlobalKnownHostsFile=/dev/null" \
    GIT_ALLOW_PROTOCOL=file:https:ssh:http:git ask_host "$REPO_URL" ls-remote -q --end-of-options "$REPO_URL" HEAD >/dev/null
}

# Called before anything else: ends here unless the box can read the repository, with a token if necessary.
gain_access() {
  # The box has this commit already.
  ! grep -qE $'^plan\trepo\t(done|alive|broken)$' <<<"$PLAN" || return 0
  ! can_read || return 0
  TOKEN=$(box_value GIT_TOKEN)
  if [ -n "$TOKEN" ] && can_read; then return; fi
  grep -qiE 'username|authentication|not found|40[134]' "$PRIVATE/said" ||
    refuse "$REPO_URL can't be reached from this box ($(tail -n 1 "$PRIVATE/said"))"
  ask_for "a token that may read $REPO_URL" ||
    refuse "$REPO_URL is private: put a token into GIT_TOKEN of this box's environment, or paste this into a terminal"
  TOKEN=$VALUE
  can_read || refuse "the token does not open $REPO_URL"
}
