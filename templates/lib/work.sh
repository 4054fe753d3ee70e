# shellcheck shell=bash
# work: what a run trains, by its content; which run has it, and what differs.

# Sets WORK to the digest of content, command, environment and data. The same work starts once, however often it is
# asked for. Without data, and from earlier versions, it is WORK_WITHOUT_DATA.
find_work() {
  [ -n "$WORK" ] && return
  # A box that clones on its own finds the tree once it has the commit.
  [ -n "$REPO_TREE" ] || # full
    REPO_TREE=$(tree_of "$REPO_SNAPSHOT") || :
  DATA_CONTENT= # full
  find_data_content # full
  # Of the environment only what the user chose: its files are in the tree, and the driver is the box's. These decide
  # only whether it is built again.
  inputs_python
  MADE_WITH=$CHOSEN
  EARLIER_OF=none # full
  digest_work "$REPO_TREE"
  WORK=$DIGEST
  WORK_WITHOUT_DATA=$DIGEST # full
  [ -z "$DATA_CONTENT" ] || { digest_work "$REPO_TREE" "$DATA_CONTENT" && WORK=$DIGEST; } # full
}

# find_data_content: sets DATA_CONTENT to what the profile's data in this tree is, by content; empty if there is none, or
# if an earlier version put it there. While a run is alive, other data than its own stays away: `awaited`.
find_data_content() {
  DATA_CONTENT=
  case " ${STEPS[*]} " in *' data '*) ;; *) return 0 ;; esac
  read_text "$NOTES/data.content" || return 0
  DATA_CONTENT=${TEXT%$'\n'}
  inputs_data
  is_text "$NOTES/data.ok" "$INPUTS"$'\n' || DATA_CONTENT=awaited
}

# find_earlier_works CONTENT: sets EARLIER_WORKS to the names that this work had when driver and files counted too, and
# EARLIER to what it was made with then, as far as that is known.
find_earlier_works() {
  local MADE_WITH
  [ "${EARLIER_OF-none}" != "$1" ] || return 0 # full
  EARLIER_OF=$1 # full
  inputs_python
  EARLIER=("$INPUTS") EARLIER_WORKS=' '
  EARLIER=("$WORK_INPUTS") # full
  add_noted # full
  for MADE_WITH in "${EARLIER[@]}"; do digest_work "$1" && EARLIER_WORKS+="$DIGEST "; done
}

# Adds what was noted when the environment was built: perhaps for another driver.
add_noted() {
  local line rest=${CHOSEN#"$CHOSEN_FIRST"} STAMP
  find_stamp python
  while IFS= read -r line; do
    case $line in "$CHOSEN_FIRST"*"$rest") EARLIER+=("$line") ;; esac
  done < <(cat "$STAMP" "$STAMP.earlier" 2>/dev/null)
}

# digest_work TREE [DATA]: sets DIGEST to the work's name. An earlier version used its commit in place of the tree.
digest_work() { digest <(printf '%s\0' "$1" "$TRAIN_COMMAND" "$MADE_WITH" "${ENV_NAMES[@]-}" "${ENV_VALUES[@]-}" "${@:2}"); }

# tree_of COMMIT: prints its content's digest, if this box has the commit; without the profile: the script has that.
tree_of() {
  local listed
  listed=$(work_git ls-tree "$1" 2>/dev/null) || # full
    listed=$(store_git ls-tree "$1" 2>/dev/null) || return
  digest <(grep -av $'\tboxstrap[.]yaml$' <<<"$listed")
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
  # An earlier version didn't note with which data it ran.
  [ "$2$work" != "$WORK$WORK_WITHOUT_DATA" ] || [ -f "$1/data" ] || return 0 # full
  commit=$REPO_TREE
  is_line "$1/tree" "$commit" || { [ ! -f "$1/tree" ] && read -r commit <"$1/commit"; } || return
  case $work in
    "$commit$TRAIN_COMMAND") ! grep -s '^[vp]' "$1/made_of" | grep -qvxF "$(python_and_variables)" || return ;;
    *)
      find_earlier_works "$commit"
      case $EARLIER_WORKS in *" $work "*) ;; *) return 1 ;; esac
      ;;
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
  digest <(printf '%s\n' "$CHOSEN")
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
  [ ! -f "$1/data" ] || is_line "$1/data" "${DATA_CONTENT-}" || printf ' data'
  [ -z "$TRAIN_COMMAND" ] || [ "$(<"$1/command")" = "$(absolute_command)" ] || printf ' command'
  made_of | while IFS= read -r line; do
    [[ $'\n'$known != *$'\n'"${line% *} "* || $'\n'$known$'\n' = *$'\n'"$line"$'\n'* ]] ||
      { [ "${line% *}" = environment ] && was_environment "$known"; } || printf ' %s' "${line% *}"
  done
}

# was_environment MADE_OF: whether an earlier version noted this same environment there.
was_environment() {
  local made
  find_earlier_works "$REPO_TREE"
  for made in "${EARLIER[@]}"; do
    digest <(printf '%s\n' "$made")
    [[ $'\n'$1$'\n' != *$'\n'"environment $DIGEST"$'\n'* ]] || return 0
  done
  return 1
}
