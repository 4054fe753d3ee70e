# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# receive: git objects from standard input into the store, once git is here.

find_home
waited=0
until command -v git >/dev/null 2>&1; do
  [ "$waited" -lt 6000 ] || exit 1
  waited=$((waited + 1))
  sleep 0.1
done
find_repository "$box_home" "$repo_key" "$repo_root" ""
store=$box_home/store/$repo_key.git
umask 077
mkdir -p "$box_home/store"
identity $$ >"$store.sender"
# What a broken transfer left lies in the way of nothing; it only takes room.
find "$store/objects" -maxdepth 2 \( -name 'tmp_objdir-incoming-*' -o -name 'tmp_pack_*' \) -mmin +60 -exec rm -rf {} + 2>/dev/null
# A damaged store has nothing that the repository here hasn't: it is begun anew.
packs_right "$store/packs" "$store/objects/pack" ||
  { mv -T "$store" "$store.damaged.$$" && rm -rf "$store.damaged.$$"; }
free_git_locks "$store" "$store" || printf 'another git is at work in %s\n' "$store" >&2
if [ ! -d "$store" ]; then
  if [ "$object_format" = sha256 ]; then
    git init -q --bare --template= --object-format=sha256 "$store.new.$$"
  else
    git init -q --bare --template= "$store.new.$$"
  fi
  mv -T "$store.new.$$" "$store" 2>/dev/null || rm -rf "$store.new.$$"
fi
printf 'receive-pack\n'
unset GIT_PROTOCOL
rm -f "$store.refused"
exec 3>&1
said=$(git --git-dir="$store" -c core.hooksPath=/dev/null -c receive.shallowUpdate=true -c receive.autogc=false -c receive.unpackLimit=1 \
  -c safe.directory="$store" receive-pack --stateless-rpc "$store" 2>&1 >&3)
printf '%s\n' "$said" >&2
# Sent again it would be refused again: the step that waits for it ends.
case $said in
  *'No space left'* | *'Disk quota exceeded'*) printf 'disk-full\n' >"$store.refused.new" && mv -f "$store.refused.new" "$store.refused" ;;
esac
