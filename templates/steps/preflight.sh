# shellcheck shell=bash
# preflight: can this box be set up at all? Looks only; changes nothing.

inputs_preflight() { inputs v1; }
check_preflight() { [ -z "$(lacks)" ]; }
apply_preflight() {
  local code sentence
  IFS=$'\t' read -r _ code sentence <<<"$(lacks)"
  [ -z "$code" ] || fail "$code" "$sentence"
}

# One line for each thing that is missing: lacks TAB code TAB sentence.
lacks() {
  local place=$WORKDIR
  until [ -z "$place" ] || [ -d "$place" ]; do place=${place%/*}; done
  place=${place:-/}
  [ -w "$place" ] || lack no-writable-dir "can't write to $place, where the working folder $WORKDIR belongs"
  lack_room "$place"
  lack_libc
  have git || can_install || lack no-git 'git is not here, and it cannot be installed without root or sudo'
  lack_time # full
}

lack() { printf 'lacks\t%s\t%s\n' "$1" "$2"; }

lack_room() {
  local blocks size inodes all
  # Free blocks and their size, free inodes and all of them; a Mac's stat has other options.
  read -r blocks size inodes all <<<"$(exec stat -f -c '%a %S %d %c' "$1" 2>/dev/null)"
  [ -n "$all" ] || return 0
  [ "$((blocks * size / 1000000))" -ge "$MIN_FREE_MB" ] ||
    lack disk-full "$1 has $((blocks * size / 1000000)) MB free; a setup needs at least $MIN_FREE_MB MB"
  # Some filesystems have no fixed number of inodes and say 0 of 0.
  [ "$all" -eq 0 ] || [ "$inodes" -ge 20000 ] || # full
    lack inodes-full "$1 has $inodes free inodes; an environment needs more" # full
}

# uv, PyTorch and the drivers are built for glibc. A glibc system may also have a musl.
lack_libc() {
  local loader
  for loader in /lib/ld-musl-*; do
    [ -e "$loader" ] || return 0
    case $(ldd --version 2>&1) in
      *musl*) lack musl 'the C library here is musl (as on Alpine), and PyTorch is built for glibc' ;;
    esac
    return 0
  done
}

# A clock that is a day off breaks every certificate. CLIENT_TIME comes with the launch, if at all.
lack_time() {
  local off
  [ -n "${CLIENT_TIME-}" ] || return 0
  now
  off=$((${NOW%.*} - CLIENT_TIME))
  [ "${off#-}" -lt 86400 ] ||
    lack clock-off "this box's clock says $(date -u '+%Y-%m-%d %H:%M') UTC, which is $((${off#-} / 86400)) days off"
}
