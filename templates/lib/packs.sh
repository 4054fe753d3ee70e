# shellcheck shell=sh
# packs: do git's packs still have the sizes that they had? POSIX sh: the queries use it too.

# packs_right LIST DIR: whether each file of the list (SIZE NAME) that is still in DIR has its size. A pack never
# changes; one that is gone was repacked, or its commit can't be read, which is noticed elsewhere.
packs_right() {
  [ -s "$1" ] || return 0
  _sizes=$(cd "$2" 2>/dev/null && exec stat -c '%s %n' -- *.pack *.idx 2>/dev/null)
  [ "$_sizes" = "$(cat "$1")" ] || [ -z "$(printf '%s\n' "$_sizes" | grep -vxFf "$1" |
    while read -r _ _name; do grep -F " $_name" "$1"; done)" ]
}
