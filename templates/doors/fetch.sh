# shellcheck shell=bash disable=SC2034,SC2154 # set here, read elsewhere; the capitals are rendered
# fetch: brings the program from where the commit is, with the same access, and lets nothing run but what was meant.

# Reads the program of the digest PROGRAM.
fetch_program() {
  local place said
  place=$(mktemp -d)
  # A shell's EXIT trap is run when it is killed, too.
  trap 'rm -rf "$place"' EXIT
  if ! command -v git >/dev/null; then
    install_git >"$place/said" 2>&1 || stop "git is not here, and it can't be installed ($(tail -n 1 "$place/said"))"
    CHANGED='git was installed, and nothing else was changed.'
  fi
  git init -q --bare --template= "$place"
  # Another host, to which this one may redirect, gets no answer.
  # shellcheck disable=SC2016 # git runs it
  printf '%s\n' '#!/bin/sh' 'case $1 in "Username for '"'"'$SCHEME://$HOST'"'"': ") echo x-access-token ;; "Password for '"'"'$SCHEME://x-access-token@$HOST'"'"': ") echo "$TOKEN" ;; *) exit 1 ;; esac' >"$place/askpass"
  chmod 700 "$place/askpass"
  GIT_TOKEN=${GIT_TOKEN:-$(tr '\0' '\n' </proc/1/environ 2>/dev/null | sed -n 's/^GIT_TOKEN=//p')}
  bring || {
    said=$(tail -n 1 "$place/said")
    case $said in
      *sername* | *uthentication* | *'not found'* | *40[134]*) ;;
      *"find remote ref"*) stop "$PROGRAM_REF is not at $PROGRAM_URL any more: render it again, with --push" ;;
      *) stop "$PROGRAM_URL can't be reached from this box ($said)" ;;
    esac
    [ -n "$GIT_TOKEN" ] || [ ! -t 0 ] || IFS= read -rsp "a token that may read $PROGRAM_URL (it is not shown): " GIT_TOKEN
    [ -n "$GIT_TOKEN" ] || stop "$PROGRAM_URL is private: put a token into GIT_TOKEN of this box's environment, or paste this into a terminal"
    bring || stop "the token does not open $PROGRAM_URL"
  }
  git --git-dir="$place" cat-file blob FETCH_HEAD:program.sh >"$place/program"
  printf '%s  %s\n' "$PROGRAM" "$place/program" | sha256sum -c --quiet >&2 || stop "what is at $PROGRAM_REF is not the program that was rendered"
  read_program <"$place/program"
  rm -rf "$place"
}

bring() {
  local host=${PROGRAM_URL#*://}
  TOKEN=$GIT_TOKEN SCHEME=${PROGRAM_URL%%://*} HOST=${host%%/*} GIT_ASKPASS=$place/askpass GIT_TERMINAL_PROMPT=0 GIT_ALLOW_PROTOCOL=https:http:git LC_ALL=C \
    timeout 14400 git -c http.lowSpeedLimit=1 -c http.lowSpeedTime=20 --git-dir="$place" fetch -q --depth 1 --no-tags "$PROGRAM_URL" "$PROGRAM_REF" 2>"$place/said"
}

install_git() {
  local as=''
  [ "$EUID" -eq 0 ] || as='sudo -n'
  if command -v apt-get; then
    $as apt-get -qq update && $as env DEBIAN_FRONTEND=noninteractive apt-get -qqyo DPkg::Lock::Timeout=300 install --no-install-recommends git ca-certificates
  elif command -v dnf; then
    $as dnf -qy install git
  elif command -v yum; then
    $as yum -qy install git
  elif command -v zypper; then
    $as zypper -qn install git
  elif command -v pacman; then
    $as pacman -Sy --noconfirm git
  else
    $as apk add -q git
  fi
}

stop() {
  printf 'boxstrap: %s.\n%s\n' "$*" "${CHANGED-Nothing was changed.}" >&2
  exit 5
}
