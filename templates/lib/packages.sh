# shellcheck shell=bash
# packages: the box's own package manager, if root or sudo allows it.

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

can_install() {
  [ -z "$IS_LOCAL" ] &&
    manager >/dev/null && { [ "$EUID" -eq 0 ] || sudo -n true 2>/dev/null; }
}

as_root() {
  if [ "$EUID" -eq 0 ]; then "$@"; else sudo -n "$@"; fi
}

# apt waits LOCK_PATIENCE seconds for the lock of another package run, and never breaks it.
APT=(env DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=a apt-get -qq -o DPkg::Lock::Timeout="$LOCK_PATIENCE"
  -o Acquire::Retries=3 -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20 -o Dpkg::Use-Pty=0
  -o Dpkg::Options::=--force-confold)

install_packages() {
  case $(manager) in
    apt-get)
      await_other_package_run
      repair_dpkg
      refresh_apt
      with_retries apt_install "$@"
      ;;
    dnf | yum | microdnf) with_retries as_root "$(manager)" install -y "$@" ;;
    zypper) with_retries as_root zypper --non-interactive install --no-recommends "$@" ;;
    pacman) with_retries as_root pacman -Sy --noconfirm --needed "$@" ;;
    apk) with_retries as_root apk add --no-cache "$@" ;;
  esac
}

# A package run that was cut short leaves its journal, or packages half-installed; until that is finished, other runs
# refuse to work. While another run holds the lock, finishing is that run's business.
repair_dpkg() {
  local out
  [ -n "$(ls -A /var/lib/dpkg/updates 2>/dev/null)" ] || [ -n "$(dpkg --audit 2>/dev/null)" ] || return 0
  if ! out=$(as_root dpkg --configure -a --force-confold 2>&1 9>&-); then
    case $out in *lock*) return 0 ;; esac
    printf '%s\n' "$out" >&2
  fi
  [ -z "$(dpkg --audit 2>/dev/null)" ] || apt_install --fix-broken
}

# Waits for another package run, LOCK_PATIENCE seconds, and never breaks its lock. The kernel says which process it is.
await_other_package_run() {
  local until=$((SECONDS + LOCK_PATIENCE)) pid told=
  while pid=$(lock_holder) && [ -n "$pid" ]; do
    if [ "$pid" != "$told" ]; then
      emit wait "code=dpkg-locked" "pid=$pid"
      printf "waiting for another package run: process %s (%s) holds the lock\n" "$pid" "$(name_of "$pid")"
      told=$pid
    fi
    [ "$SECONDS" -lt "$until" ] ||
      fail "dpkg-locked pid=$pid" "process $pid ($(name_of "$pid")) has held the lock for over $LOCK_PATIENCE s; it was left alone"
    sleep 1
  done
}

name_of() { cat "/proc/$1/comm" 2>/dev/null || printf 'ended\n'; }

# Prints the process that holds a lock of dpkg or apt, by /proc/locks (proc(5)): field 5; field 6 ends in the inode.
lock_holder() {
  local inodes
  inodes=$(stat -c %i /var/lib/dpkg/lock-frontend /var/lib/dpkg/lock /var/lib/apt/lists/lock /var/cache/apt/archives/lock 2>/dev/null)
  awk -v inodes="$inodes" 'BEGIN { split(inodes, list, "\n"); for (i in list) wanted[list[i]] }
    { n = split($6, at, ":"); if ($2 != "->" && $5 > 0 && at[n] in wanted) { print $5; exit } }' /proc/locks 2>/dev/null
}

# Fetches the lists if there are none, or if they are over a day old.
refresh_apt() {
  [ -n "$(find /var/lib/apt/lists -maxdepth 1 -name '*_Packages*' -mtime -1 -print -quit 2>/dev/null)" ] ||
    with_retries apt_update
}

apt_update() {
  local out rc=0
  await_other_package_run
  out=$(as_root "${APT[@]}" update 2>&1 9>&-) || rc=$?
  printf '%s\n' "$out" >&2
  # apt only warns of a half-fetched index; a package that is not in it then looks like a missing one.
  case $rc:$out in 0:*'Failed to fetch'*) return 1 ;; *) return "$rc" ;; esac
}

apt_install() {
  await_other_package_run
  as_root "${APT[@]}" install -y --no-install-recommends "$@" 2>&1 9>&-
}
