# shellcheck shell=bash
# venv: what lies in a Python environment, and whether it still does. For ours and for the training's.

# What is in an environment: all folders of packages, and the files beside them. Called in a process of its own.
packages_in() {
  cd "$1" && find lib/python*/site-packages -name __pycache__ -prune -o -type d -print -o \
    -path 'lib/python*/site-packages/*' ! -path 'lib/python*/site-packages/*/*' -print 2>/dev/null | sort
}

# all_there ENVIRONMENT LIST
all_there() {
  local names
  while mapfile -t -n 4000 names && [ "${#names[@]}" -gt 0 ]; do
    (cd "$1" && exec stat -c '' -- "${names[@]}") >/dev/null 2>&1 || return 1
  done <"$2"
}
