# shellcheck shell=sh
# owner: whose a file or folder is. POSIX sh: the queries use it too.

# is_anothers PLACE: whether another user of this box may have put it there, or the link that leads to it. Programs
# and secrets of ours would be theirs. Some file systems give all files to nobody, or to who mounted them.
# shellcheck disable=SC2012,SC2046 # only the first words of ls count, and stat's options differ
is_anothers() {
  if [ -O "$1" ] && [ ! -L "$1" ]; then return 1; fi
  [ -e "$1" ] || [ -L "$1" ] || return 1
  set -- "$1" $(ls -ldn "${1%/*}/.")
  case $2 in ?????w* | ????????w*) ;; *) return 1 ;; esac
  for _each in "$1" "$1/."; do
    _owner=$(ls -ldn "$_each" 2>/dev/null | { read -r _ _ _owner _; printf %s "$_owner"; })
    case " 0 65534 $(id -u) $4 " in *" $_owner "*) [ ! -f "$1" ] || return 1 ;; *) return 0 ;; esac
  done
  return 1
}
