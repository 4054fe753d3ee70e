# shellcheck shell=bash disable=SC2154 # set elsewhere
# git: how a host is asked before the program is there.

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
