# shellcheck shell=sh
# repository: which repository of this box is meant, and which folder is its own. POSIX sh: the queries use it too.
# steps/KEY notes for each one: `repo.root`, the first commit of its main line; `repo.dir`, its folder;
# `repo.key`, the key that it has here, if somebody else calls it KEY.

# find_repository BOX_HOME KEY ROOT NAME: sets repo_key and repo_dir. Equal first commits mean one repository, from
# whichever client; if a first commit is not known (""), the key decides.
find_repository() {
  repo_key=$2
  { read -r repo_key <"$1/steps/$2/repo.key"; } 2>/dev/null || :
  if [ -n "$3" ] && ! is_rooted "$1" "$repo_key" "$3"; then
    repo_key=$2
    if [ -n "$_root" ]; then repo_key=${2%-*}-$(printf %.8s "$3"); fi
    for _other in "$1"/store/*.git "$1"/steps/*/ "$1"/runs/*/; do
      _other=${_other%/} _other=${_other##*/} _other=${_other%.git}
      if [ "$_other" != "$2" ] && is_rooted "$1" "$_other" "$3"; then
        repo_key=$_other
        break
      fi
    done
  fi
  repo_dir=${1%/*}/${4:-${2%-*}}
  if has_folder "$1" "$repo_key"; then
    repo_dir=$_folder
  elif is_taken "$1" "$repo_dir" "$3"; then
    repo_dir=$repo_dir-$(printf %.4s "${repo_key##*-}")
  fi
}

# is_rooted BOX_HOME KEY ROOT: whether its first commit is this one. Sets _root to what is known of it.
is_rooted() {
  _root=
  { read -r _root <"$1/steps/$2/repo.root"; } 2>/dev/null ||
    # Its note is lost.
    { [ -d "$1/store/$2.git" ] && _root=$(root_of "$1/store/$2.git"); } ||
    { has_folder "$1" "$2" && _root=$(root_of "$_folder/.git"); } || :
  [ "$_root" = "$3" ]
}

# root_of GIT_DIR: prints the first commit of the main line of what was sent; nothing if the history is shallow.
root_of() {
  [ -d "$1" ] && [ ! -f "$1/shallow" ] || return 0
  _sent=$(git --git-dir="$1" -c safe.directory='*' for-each-ref --count=1 --format='%(objectname)' refs/boxstrap 2>/dev/null)
  git --git-dir="$1" -c safe.directory='*' rev-list --first-parent --max-parents=0 "${_sent:-HEAD}" -- 2>/dev/null
}

# has_folder BOX_HOME KEY: whether it has one already; sets _folder.
has_folder() { { read -r _folder <"$1/steps/$2/repo.dir"; } 2>/dev/null; }

# is_taken BOX_HOME FOLDER ROOT: whether it belongs to another repository of this box.
is_taken() {
  for _other in "$1"/steps/*/ "$1"/runs/*/; do
    _other=${_other%/}
    has_folder "$1" "${_other##*/}" && [ "$_folder" = "$2" ] && return
  done
  # A tree of boxstrap's without a note: from an earlier box that had this volume.
  [ -n "$3" ] && placed_by_us "$2" && [ "$(root_of "$2/.git")" != "$3" ]
}

placed_by_us() {
  [ -e "$1/.git" ] || return
  [ -e "$1/.git/refs/boxstrap/placed" ] || grep -qs ' refs/boxstrap/placed$' "$1/.git/packed-refs"
}
