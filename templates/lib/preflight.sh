# shellcheck shell=bash
# preflight: can this box be set up at all? Looks only; changes nothing.

# One line for each thing that is missing: lacks TAB code TAB sentence.
lacks() {
  local place=$WORKDIR
  until [ -z "$place" ] || [ -d "$place" ]; do place=${place%/*}; done
  place=${place:-/}
  is_mounted "$VOLUME_AT" || lack volume-not-mounted "the volume that was rented with this box is not mounted at $VOLUME_AT"
  [ -w "$place" ] || lack no-writable-dir "can't write to $place, where the working folder $WORKDIR (box.workdir) belongs"
  ! is_anothers "$BOX_HOME" || lack home-of-another "$BOX_HOME belongs to another user of this box, or leads to a folder of theirs"
  lack_own_settings
  lack_room "$place" "$MIN_FREE_MB" and-inodes
  lack_temporary "${TMPDIR:-/tmp}"
  lack_libc
  have git || can_install || lack no-git 'git is not here, and it cannot be installed without root or sudo'
  lack_time
}

lack() { printf 'lacks\t%s\t%s\n' "$1" "$2"; }

# Whether a volume is mounted there; without a place, or without the tool, nothing says that it isn't.
is_mounted() { [ -z "$1" ] || ! have mountpoint || mountpoint -q "$1"; }

# lack_own_settings: uv looks for its settings in the tree and above, and they may name an index: whoever puts a file
# into a working folder that all may write decides which packages run as this user. Above it, guard_settings helps.
lack_own_settings() {
  local file
  for file in "$WORKDIR"/{uv.toml,pyproject.toml,.python-version,.python-versions}; do
    ! is_anothers "$file" || { lack settings-of-another "$file belongs to another user of this box, and what installs packages would read it" && return; }
  done
}

# lack_temporary PLACE: temporary files are written there, whatever box.workdir is.
lack_temporary() {
  if [ -w "$1" ]; then lack_room "$1" "$MIN_TMP_MB"; else lack no-temporary "can't write to $1, where temporary files belong"; fi
}

# lack_room PLACE MB [and-inodes]: an environment has many files.
lack_room() {
  local blocks size inodes all
  # Not `<<<`: that may make a file, for which there may be no room.
  # Free blocks and their size, free inodes and all of them; a Mac's stat has other options.
  read -r blocks size inodes all < <(exec stat -f -c '%a %S %d %c' "$1" 2>/dev/null) || :
  [ -n "$all" ] || return 0
  [ "$((blocks * size / 1000000))" -ge "$2" ] ||
    lack disk-full "$1 has $((blocks * size / 1000000)) MB free; a setup needs at least $2 MB"
  # Some filesystems have no fixed number of inodes and say 0 of 0.
  [ "$all" -eq 0 ] || [ "$inodes" -ge 20000 ] || [ -z "${3-}" ] ||
    lack inodes-full "$1 has $inodes free inodes; an environment needs more"
}

# uv, PyTorch and the drivers are built for glibc. A glibc system may also have a musl.
lack_libc() {
  set -- /lib/ld-musl-*
  [ ! -e "$1" ] || [[ $(ldd --version 2>&1) != *musl* ]] ||
    lack musl 'the C library here is musl (as on Alpine), and PyTorch is built for glibc'
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
