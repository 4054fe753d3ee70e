# shellcheck shell=bash
# work: what a run trains, by its content; which run has it, and what differs.

# Sets WORK to the digest of content, command, environment and data. The same work starts once, however often it is
# asked for.
find_work() {
  [ -n "$WORK" ] && return
  # A box that clones on its own finds the tree once it has the commit.
  [ -n "$REPO_TREE" ] || REPO_TREE=$(tree_of "$REPO_SNAPSHOT") || :
  find_data_content
  # Of the environment only what the user chose: its files are in the tree, and the driver is the box's. These decide
  # only whether it is built again.
  inputs_python
  digest <(printf '%s\0' "$REPO_TREE" "$TRAIN_COMMAND" "$CHOSEN" "${ENV_NAMES[@]-}" "${ENV_VALUES[@]-}" ${DATA_CONTENT:+"$DATA_CONTENT"})
  WORK=$DIGEST
}

# find_data_content: sets DATA_CONTENT to what the profile's data in this tree is, by content; empty if there is none.
# While a run is alive, other data than its own stays away: `awaited`.
find_data_content() {
  DATA_CONTENT=
  case " ${STEPS[*]} " in *' data '*) DATA_CONTENT=$(facts | onbox steps.data) ;; esac
}

# tree_of COMMIT: prints its content's digest, if this box has the commit; without the profile: the script has that.
tree_of() {
  local listed
  listed=$(work_git ls-tree "$1" 2>/dev/null) || listed=$(store_git ls-tree "$1" 2>/dev/null) || return
  digest <(grep -av $'\tboxstrap[.]yaml$' <<<"$listed")
  printf '%s\n' "$DIGEST"
}

# is_content RUN: whether its files were this snapshot's.
is_content() { is_line "$1/tree" "$REPO_TREE"; }

# find_run_of WORK: sets RUN_OF to its newest run, under any key, since the folder is part of the work. 1 if none.
find_run_of() { RUN_OF=$(onbox runs.start of "$BOX_HOME" "$1"); }

# Prints what a run is made of besides its commit and command, one digest a line: a later setup names what differs.
made_of() {
  inputs_python
  digest <(printf '%s\n' "$CHOSEN")
  printf 'environment %s\n' "$DIGEST"
  digest <(printf '%s\0' "${ENV_NAMES[@]-}" "${ENV_VALUES[@]-}")
  printf 'python %s\nvariables %s\n' "$PYTHON_ID" "$DIGEST"
  [ -z "$SECRETS_ID" ] || printf 'secrets %s\n' "$SECRETS_ID"
}

# differences RUN: prints what differs between this setup and that run.
differences() {
  local line known=
  [ ! -f "$1/made_of" ] || known=$(<"$1/made_of")
  if [ -n "$WORK" ] && find_run_of "$WORK" && [ "$RUN_OF" = "$1" ]; then
    # For the same work only the secrets may differ.
    case $known in *'secrets '*) is_line "$1/made_of" "secrets $SECRETS_ID" || printf ' secrets' ;; esac
    return
  fi
  is_content "$1" || printf ' commit'
  [ ! -f "$1/data" ] || is_line "$1/data" "${DATA_CONTENT-}" || printf ' data'
  [ -z "$TRAIN_COMMAND" ] || [ "$(<"$1/command")" = "$(absolute_command)" ] || printf ' command'
  made_of | while IFS= read -r line; do
    [[ $'\n'$known != *$'\n'"${line% *} "* || $'\n'$known$'\n' = *$'\n'"$line"$'\n'* ]] || printf ' %s' "${line% *}"
  done
}
