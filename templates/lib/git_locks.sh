# shellcheck shell=sh
# git_locks: a git that was killed leaves its locks behind, and every later git refuses to work. POSIX sh.

# git_lock DIR: prints one of the locks in a git folder, if there are any.
git_lock() {
  find "$1" \( -path "$1/objects" -o -path "$1/lfs" \) -prune -o -type f -name '*.lock' -print -quit 2>/dev/null
}

# git_at_work DIR: is a git process working in this folder, or for it?
git_at_work() {
  for _dir in /proc/[0-9]*; do
    { read -r _comm <"$_dir/comm"; } 2>/dev/null || continue
    case $_comm in git*) ;; *) continue ;; esac
    case "$(readlink "$_dir/cwd" 2>/dev/null)/ $(tr '\0' ' ' 2>/dev/null <"$_dir/cmdline")" in
      "$1"/* | *" $1"* | *"=$1"*) return 0 ;;
    esac
  done
  return 1
}

# free_git_locks GIT_DIR FOLDER: removes locks that nobody holds; 1 if a git at work in FOLDER keeps one.
free_git_locks() {
  _tries=0
  while [ -n "$(git_lock "$1")" ]; do
    if ! git_at_work "$2"; then
      find "$1" \( -path "$1/objects" -o -path "$1/lfs" \) -prune -o -type f -name '*.lock' -exec rm -f {} +
      return 0
    fi
    [ "$_tries" -lt 50 ] || return 1
    _tries=$((_tries + 1))
    sleep 0.2
  done
}
