# shellcheck shell=bash
# venv: what lies in a Python environment, and whether it still does. For ours and for the training's.

# list_packages ENVIRONMENT LIST: what is in it: all folders of packages, and the files beside them. With torch that is
# half a megabyte, which no variable takes. In one order: boxes are compared.
list_packages() {
  # By their kind first, which find knows without a look at the file; of tens of thousands it compares no name.
  (cd "$1" && { find lib/python*/site-packages -type d \( -name __pycache__ -prune -o -print \) || :
    find lib/python*/site-packages -maxdepth 1 ! -type d; } 2>/dev/null) |
    sort | write_file "$2" 600
}

# all_there ENVIRONMENT LIST: what this very setup has listed was there a moment ago.
all_there() {
  local names
  if [ -n "${SETUP_DIR-}" ] && [ "$2" -nt "$SETUP_DIR/pid" ]; then return; fi
  while mapfile -t -n 4000 names && [ "${#names[@]}" -gt 0 ]; do
    (cd "$1" && exec stat -c '' -- "${names[@]}") >/dev/null 2>&1 || return 1
  done <"$2"
}
