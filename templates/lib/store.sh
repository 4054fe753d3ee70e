# shellcheck shell=sh disable=SC2034,SC2154 # for find_program, and set by it
# store: the bare repository on the box that takes git objects as they are sent. POSIX sh: the queries use it.

# open_store STORE FORMAT: makes sure that it exists and is undamaged; FORMAT is how it names objects.
open_store() {
  umask 077
  [ -d "${1%/*}" ] || mkdir -p "${1%/*}"
  identity $$ >"$1.sender"
  for _left in "$1"/objects/tmp_objdir-incoming-* "$1"/objects/*/tmp_pack_* "$1"/*.lock "$1"/refs/*.lock "$1"/refs/*/*.lock; do
    [ -e "$_left" ] || continue
    case $_left in
      # A git that was killed leaves its locks, and each later one refuses to work.
      *.lock) (box_home=${1%/*/*} && find_program work.repair && exec "$python" -I -S -B "$program" "$module" "$1") || : ;;
      # Leftovers of a broken transfer do no harm; they only take room.
      *) find "$_left" -maxdepth 0 -mmin +60 -exec rm -rf {} + 2>/dev/null ;;
    esac
  done
  # A damaged store has nothing that the sender's repository doesn't have: it is made again.
  packs_right "$1/packs" "$1/objects/pack" ||
    { mv -T "$1" "$1.damaged.$$" && rm -rf "$1.damaged.$$"; }
  [ ! -d "$1" ] || return 0
  if [ "$2" = sha256 ]; then
    git init -q --bare --template= --object-format=sha256 "$1.new.$$"
  else
    git init -q --bare --template= "$1.new.$$"
  fi
  mv -T "$1.new.$$" "$1" 2>/dev/null || rm -rf "$1.new.$$"
}

# receive_objects STORE: from standard input, as ObjectStream sends them; prints git's report, then its errors.
receive_objects() {
  unset GIT_PROTOCOL
  [ ! -e "$1.refused" ] || rm -f "$1.refused"
  exec 4>&1
  _said=$(git --git-dir="$1" -c core.hooksPath=/dev/null -c receive.shallowUpdate=true -c receive.autogc=false -c receive.unpackLimit=1 \
    -c safe.directory="$1" receive-pack --stateless-rpc "$1" 2>&1 >&4) || :
  exec 4>&-
  printf '%s\n' "$_said" >&2
  # If it were sent again, it would be refused again: the step that waits for it ends.
  case $_said in
    *'No space left'* | *'Disk quota exceeded'*) printf 'disk-full\n' >"$1.refused.new" && mv -f "$1.refused.new" "$1.refused" ;;
  esac
}
