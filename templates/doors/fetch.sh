# shellcheck shell=bash disable=SC2034,SC2154 # set here, read elsewhere; the capitals are rendered
# fetch: brings the program from where the commit is, with the same access, and lets nothing run but what was meant.

# Reads the program of the digest PROGRAM.
fetch_program() {
  local said
  PRIVATE=$(mktemp -d)
  # A shell's EXIT trap is run when it is killed, too.
  trap 'rm -rf "$PRIVATE"' EXIT
  if ! command -v git >/dev/null; then
    install_git >"$PRIVATE/said" 2>&1 || stop "git is not here, and it can't be installed ($(tail -n 1 "$PRIVATE/said"))"
    CHANGED='git was installed, and nothing else was changed.'
  fi
  git init -q --bare --template= "$PRIVATE"
  GIT_TOKEN=${GIT_TOKEN:-$(tr '\0' '\n' </proc/1/environ 2>/dev/null | sed -n 's/^GIT_TOKEN=//p')}
  bring || {
    said=$(tail -n 1 "$PRIVATE/said")
    case $said in
      *sername* | *uthentication* | *'not found'* | *40[134]*) ;;
      *"find remote ref"*) stop "$PROGRAM_REF is not at $PROGRAM_URL any more: render it again, with --push" ;;
      *) stop "$PROGRAM_URL can't be reached from this box ($said)" ;;
    esac
    [ -n "$GIT_TOKEN" ] || [ ! -t 0 ] || IFS= read -rsp "a token that may read $PROGRAM_URL (it is not shown): " GIT_TOKEN
    [ -n "$GIT_TOKEN" ] || stop "$PROGRAM_URL is private: put a token into GIT_TOKEN of this box's environment, or paste this into a terminal"
    bring || stop "the token does not open $PROGRAM_URL"
  }
  git --git-dir="$PRIVATE" cat-file blob FETCH_HEAD:program.sh >"$PRIVATE/program"
  printf '%s  %s\n' "$PROGRAM" "$PRIVATE/program" | sha256sum -c --quiet >&2 || stop "what is at $PROGRAM_REF is not the program that was rendered"
  read_program <"$PRIVATE/program"
  rm -rf "$PRIVATE"
}

bring() { TOKEN=$GIT_TOKEN GIT_ALLOW_PROTOCOL=https:http:git ask_host "$PROGRAM_URL" fetch -q --depth 1 --no-tags "$PROGRAM_URL" "$PROGRAM_REF"; }

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
