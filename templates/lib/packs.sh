# shellcheck shell=sh
# packs: is what git keeps still as long as it was? POSIX sh: the queries use it too.

# packs_right LIST DIR: each file of the list (SIZE NAME) that is still in DIR has its size. A pack never
# changes; one that is gone was packed anew, or its commit can't be read and that is seen elsewhere.
packs_right() {
  [ -s "$1" ] || return 0
  _listed="
$(cat "$1")
"
  (
    cd "$2" 2>/dev/null || exit 0
    set --
    while read -r _ _name; do set -- "$@" "$_name"; done <<LIST
$_listed
LIST
    stat -c '%s %n' -- "$@" 2>/dev/null
  ) | while IFS= read -r _found; do
    case $_listed in *"
$_found
"*) ;; *) exit 1 ;; esac
  done
}
