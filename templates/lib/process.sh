# shellcheck shell=sh
# process: is a recorded process still the same one? POSIX sh: the queries use it too.

# read_stat FOLDER: sets _stat to what /proc says of a process. A program gives itself its name: it may hold a newline.
read_stat() {
  _stat=''
  { while read -r _more; do _stat="$_stat$_more "; done <"$1/stat"; } 2>/dev/null
  [ -n "$_stat" ]
}

# find_identity PID: sets _identity to number, start time and boot, since process numbers are reused.
find_identity() {
  read_stat "/proc/$1" || return 1
  { read -r _boot </proc/sys/kernel/random/boot_id; } 2>/dev/null || _boot=none
  # shellcheck disable=SC2086 # the fields of stat, after the name
  set -- "$1" ${_stat##*) }
  _identity="$1 ${21} $_boot"
}

# identity PID: prints it.
identity() { find_identity "$1" && printf '%s\n' "$_identity"; }

# alive "PID START BOOT": whether it runs and is no zombie.
alive() {
  [ -n "$1" ] || return 1
  find_identity "${1%% *}" && [ "$_identity" = "$1" ] || return 1
  case ${_stat##*) } in Z*) return 1 ;; *) return 0 ;; esac
}
