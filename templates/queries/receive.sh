# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# receive: git objects from standard input into the store, once git is installed.
# library: packs repository store queries/program

find_home
waited=0
until command -v git >/dev/null 2>&1; do
  [ "$waited" -lt 6000 ] || exit 1
  waited=$((waited + 1))
  sleep 0.1
done
find_repository "$box_home" "$repo_key" "$repo_root" ""
open_store "$box_home/store/$repo_key.git" "$object_format"
printf 'receive-pack\n'
receive_objects "$box_home/store/$repo_key.git"
