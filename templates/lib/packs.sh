# shellcheck shell=sh
# packs: do git's packs still have the sizes that they had? POSIX sh: the queries use it too.

# packs_right LIST DIR: whether each file of the list (SIZE NAME) that is still in DIR has its size. A pack never
# changes; one that is gone was repacked, or its commit can't be read, which is noticed elsewhere.
packs_right() {
  [ -s "$1" ] || return 0
  _list=$1 _dir=$2 _listed=' '
  set --
  while read -r _size _name; do
    _listed="$_listed$_size:$_name "
    set -- "$@" "$_name"
  done <"$_list"
  for _found in $(cd "$_dir" 2>/dev/null && exec stat -c '%s:%n' -- "$@" 2>/dev/null); do
    case $_listed in *" $_found "*) ;; *) return 1 ;; esac
  done
}
