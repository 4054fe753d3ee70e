# shellcheck shell=bash disable=SC2034,SC2153 # set here, read elsewhere; the capitals are rendered
# access: what a door needs that is not in the script: the repository, a token, a secret. It ends here without.

# ask_host URL WORD...: git, with TOKEN for this host alone: another one, to which it may redirect, gets no answer. The
# token is only in git's environment: the helper that it asks does not contain it. A host that trickles is given up.
ask_host() {
  local host=${1#*://}
  # shellcheck disable=SC2016 # git runs it
  printf '%s\n' '#!/bin/sh' 'case $1 in "Username for '"'"'$SCHEME://$HOST'"'"': ") echo x-access-token ;; "Password for '"'"'$SCHEME://x-access-token@$HOST'"'"': ") echo "$BOXSTRAP_TOKEN" ;; *) exit 1 ;; esac' >"$PRIVATE/askpass"
  chmod 700 "$PRIVATE/askpass"
  BOXSTRAP_TOKEN=$TOKEN SCHEME=${1%%://*} HOST=${host%%/*} GIT_ASKPASS=$PRIVATE/askpass GIT_TERMINAL_PROMPT=0 LC_ALL=C \
    timeout 14400 git -C "$PRIVATE" -c http.lowSpeedLimit=1 -c http.lowSpeedTime=20 "${@:2}" 2>"$PRIVATE/said"
}

# with_access URL COMMAND: runs it, which asks for URL. A private one needs a token, which is kept only in memory.
with_access() {
  TOKEN=''
  ! "$2" || return 0
  TOKEN=${GIT_TOKEN:-$(box_value GIT_TOKEN)}
  if [ -n "$TOKEN" ] && "$2"; then return; fi
  grep -qiE 'username|authentication|not found|40[134]' "$PRIVATE/said" ||
    refuse "$1 can't be reached from this box ($(tail -n 1 "$PRIVATE/said"))"
  ask_for "a token that may read $1" ||
    refuse "$1 is private: put a token into GIT_TOKEN of this box's environment, or paste this into a terminal"
  TOKEN=$VALUE GIT_TOKEN=$VALUE
  "$2" || refuse "the token does not open $1"
}

can_read() {
  GIT_SSH_COMMAND="ssh -o BatchMode=yes -o ConnectTimeout=20 -o StrictHostKeyChecking=yes -o UserKnownHostsFile='$BOX_HOME/known_hosts' -o GlobalKnownHostsFile=/dev/null" \
    GIT_ALLOW_PROTOCOL=file:https:ssh:http:git ask_host "$REPO_URL" ls-remote -q --end-of-options "$REPO_URL" HEAD >/dev/null
}

# box_value NAME: prints its value in the box's own environment; providers keep that in several places.
box_value() {
  local pair
  while IFS= read -r -d '' pair; do
    [ "${pair%%=*}" != "$1" ] || [ -z "${pair#*=}" ] || { printf '%s\n' "${pair#*=}" && return; }
  done < <(
    printf '%s\0' "$1=${!1-}"
    cat /proc/1/environ "${BOX_HOME-}/secrets"
    sed -nE "s/^(export )?($1=)[\"']?([^\"']*)[\"']?\$/\\2\\3/p" /etc/environment /etc/rp_environment | tail -n 1 | tr '\n' '\0'
  ) 2>/dev/null
}

# ask_for NAME: reads VALUE from the terminal without showing it; fails if there is no terminal or no answer.
ask_for() {
  VALUE=
  if [ -t 0 ]; then IFS= read -rsp "$1 (it is not shown): " VALUE && echo; fi
  [ -n "$VALUE" ]
}

refuse() {
  printf 'boxstrap: %s.\n' "$*" >&2
  [ -n "${SETUP_DIR-}" ] || printf '%s\n' "${CHANGED-Nothing was changed.}" >&2
  exit 5
}
