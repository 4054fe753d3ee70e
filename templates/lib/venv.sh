# shellcheck shell=bash
# venv: what is in a Python environment, and whether it still is. For boxstrap's own and the training's.

# list_packages ENVIRONMENT LIST: writes all folders of packages, and the files next to them, to LIST. With torch that
# is half a megabyte, too much for a variable. Sorted, since boxes are compared.
list_packages() {
  # By type first, which find knows without reading the inode; so it compares no names of tens of thousands of files.
  (cd "$1" && { find lib/python*/site-packages -type d \( -name __pycache__ -prune -o -print \) || :
    find lib/python*/site-packages -maxdepth 1 ! -type d; } 2>/dev/null) |
    sort | write_file "$2" 600
}

# all_there ENVIRONMENT LIST: what this same setup has listed was there a moment ago, and is not checked.
all_there() {
  local names
  if [ -n "${SETUP_DIR-}" ] && [ "$2" -nt "$SETUP_DIR/pid" ]; then return; fi
  while mapfile -t -n 4000 names && [ "${#names[@]}" -gt 0 ]; do
    (cd "$1" && exec stat -c '' -- "${names[@]}") >/dev/null 2>&1 || return 1
  done <"$2"
}
