# shellcheck shell=bash
# packages: the box's own package manager, where root or sudo allows.

# Manager and its install command; the first that is here is used.
MANAGERS=(apt-get dnf yum microdnf zypper pacman apk)

manager() {
  local name
  for name in "${MANAGERS[@]}"; do
    if have "$name"; then
      printf '%s\n' "$name"
      return
    fi
  done
  return 1
}

can_install() { [ -z "$IS_LOCAL" ] && manager >/dev/null && { [ "$EUID" -eq 0 ] || sudo -n true 2>/dev/null; }; }

as_root() {
  if [ "$EUID" -eq 0 ]; then "$@"; else sudo -n "$@"; fi
}

# A lock of another package run is waited for, LOCK_PATIENCE seconds, and never broken.
APT=(env DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=a apt-get -qq -o DPkg::Lock::Timeout="$LOCK_PATIENCE"
  -o Acquire::Retries=3 -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20 -o Dpkg::Use-Pty=0
  -o Dpkg::Options::=--force-confold)

install_packages() {
  case $(manager) in
    apt-get)
      mend_dpkg
      refresh_apt
      apt_patiently install -y --no-install-recommends "$@"
      ;;
    dnf | yum | microdnf) as_root "$(manager)" install -y "$@" ;;
    zypper) as_root zypper --non-interactive install --no-recommends "$@" ;;
    pacman) as_root pacman -Sy --noconfirm --needed "$@" ;;
    apk) as_root apk add --no-cache "$@" ;;
  esac
}

# A run that was cut short leaves its journal, or packages half-way; until that is worked off, other runs
# refuse. While another run holds the lock it is that one's own business.
mend_dpkg() {
  local out
  [ -n "$(ls -A /var/lib/dpkg/updates 2>/dev/null)" ] || [ -n "$(dpkg --audit 2>/dev/null)" ] || return 0
  if ! out=$(as_root dpkg --configure -a --force-confold 2>&1 9>&-); then
    case $out in *lock*) return 0 ;; esac
    printf '%s\n' "$out" >&2
  fi
  [ -z "$(dpkg --audit 2>/dev/null)" ] || apt_patiently install -y --fix-broken
}

# The lists are fetched where there are none, or where they are over a day old.
refresh_apt() {
  [ -n "$(find /var/lib/apt/lists -maxdepth 1 -name '*_Packages*' -mtime -1 -print -quit 2>/dev/null)" ] ||
    with_retries apt_update
}

# `update` takes a lock of its own, for which apt has no patience.
apt_update() {
  local until=$((SECONDS + LOCK_PATIENCE)) out
  until out=$(as_root "${APT[@]}" update 2>&1 9>&-); do
    printf '%s\n' "$out" >&2
    case $out in *'Could not get lock'*) ;; *) return 1 ;; esac
    [ "$SECONDS" -lt "$until" ] || fail "dpkg-locked $(holder_in "$out")" "another package run holds apt's lock"
    tell wait code=dpkg-locked "$(holder_in "$out")"
    sleep 3
  done
  # apt calls a half-fetched index a warning; what it lacks then looks like a missing package.
  case $out in *'Failed to fetch'*) printf '%s\n' "$out" >&2 && return 1 ;; esac
}

# Who holds the lock, in apt's own words: "It is held by process 812 (apt-get)".
holder_in() { sed -n 's/.*held by process \([0-9]*\).*/pid=\1/p' <<<"$1" | head -n 1; }

apt_patiently() {
  as_root "${APT[@]}" "$@" 9>&- 2>&1 | while IFS= read -r line; do
    printf '%s\n' "$line"
    case $line in *'Waiting for cache lock'*) tell wait code=dpkg-locked "$(holder_in "$line")" ;; esac
  done
  return "${PIPESTATUS[0]}"
}
