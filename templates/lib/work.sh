# shellcheck shell=bash
# work: what a run trains, by its content; which run has it, and what differs.

# Sets WORK to the digest of content, command and environment. The same work starts once, however often it is asked for.
find_work() {
  [ -n "$WORK" ] && return
  # A box that clones on its own finds the tree once it has the commit.
  [ -n "$REPO_TREE" ] || # full
    REPO_TREE=$(tree_of "$REPO_SNAPSHOT") || :
  inputs_python
  MADE_WITH=$INPUTS
  digest_work "$REPO_TREE"
  WORK=$DIGEST
}

# digest_work TREE: sets DIGEST to the work's name. An earlier version used its commit in place of the tree.
digest_work() { digest <(printf '%s\0' "$1" "$TRAIN_COMMAND" "$MADE_WITH" "${ENV_NAMES[@]-}" "${ENV_VALUES[@]-}"); }

# tree_of COMMIT: prints its content's digest, if this box has the commit; without the profile: the script has that.
tree_of() {
  local listed
  listed=$(work_git ls-tree "$1" 2>/dev/null) || # full
    listed=$(store_git ls-tree "$1" 2>/dev/null) || return
  digest <(grep -v $'\tboxstrap[.]yaml$' <<<"$listed")
  printf '%s\n' "$DIGEST"
}

# is_content RUN: whether its files were this snapshot's. Earlier versions and the minimal edition noted commits.
is_content() {
  local id tree
  [ ! -f "$1/tree" ] || { is_line "$1/tree" "$REPO_TREE" && return; } || return # full
  read -r id <"$1/commit" || return
  ! tree=$(tree_of "$id") || [ "$tree" != "$REPO_TREE" ] || return 0 # full
  [ "$id" = "$REPO_SNAPSHOT" ]
}

# find_run_of WORK: sets RUN_OF to its newest run, under any key, since the folder is part of the work. 1 if none.
find_run_of() {
  local dir
  RUN_OF=
  for dir in "$BOX_HOME"/runs/*/*/; do
    if [ -f "$dir/work" ] && is_work "$dir" "$1"; then
      if is_newer "$dir" "$RUN_OF"; then RUN_OF=${dir%/}; fi
    fi
  done
  [ -n "$RUN_OF" ]
}

# is_work RUN WORK. The minimal edition identifies work by commit and command, and notes `python:` and variables.
is_work() {
  local work commit
  read_text "$1/work"
  work=${TEXT%$'\n'}
  [ "$work" != "$2" ] || return 0
  [ ! -f "$1/tree" ] && read -r commit <"$1/commit" || return
  digest_work "$commit"
  case $work in
    "$commit$TRAIN_COMMAND") ! grep -s '^[vp]' "$1/made_of" | grep -qvxF "$(python_and_variables)" || return ;;
    "$DIGEST") ;;
    *) return 1 ;;
  esac
  is_content "$1"
}

# What the minimal edition can compare: the profile's `python:`, and the variables.
python_and_variables() {
  digest <(printf '%s\0' "${ENV_NAMES[@]-}" "${ENV_VALUES[@]-}")
  printf 'python %s\nvariables %s\n' "$PYTHON_ID" "$DIGEST"
}

# Prints what a run is made of besides its commit and command, one digest a line: a later setup names what differs.
made_of() {
  inputs_python
  digest <(printf '%s\n' "$INPUTS")
  printf 'environment %s\n' "$DIGEST"
  python_and_variables
  [ -z "$SECRETS_ID" ] || printf 'secrets %s\n' "$SECRETS_ID"
}

# differences RUN: prints what differs between this setup and that run, as far as that run's version noted it.
differences() {
  local line known=
  [ ! -f "$1/made_of" ] || known=$(<"$1/made_of")
  if [ -n "$WORK" ] && find_run_of "$WORK" && [ "$RUN_OF" = "$1" ]; then
    # For the same work only the secrets may differ.
    case $known in *'secrets '*) is_line "$1/made_of" "secrets $SECRETS_ID" || printf ' secrets' ;; esac
    return
  fi
  is_content "$1" || printf ' commit'
  [ -z "$TRAIN_COMMAND" ] || [ "$(<"$1/command")" = "$(absolute_command)" ] || printf ' command'
  made_of | while IFS= read -r line; do
    [[ $'\n'$known != *$'\n'"${line% *} "* || $'\n'$known$'\n' = *$'\n'"$line"$'\n'* ]] || printf ' %s' "${line% *}"
  done
}
