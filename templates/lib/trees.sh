# shellcheck shell=bash disable=SC2034,SC2088,SC2153,SC2154 # set here or elsewhere; rendered; a profile's ~ is literal
# trees: a repository's main tree, its folder, and trees beside it for runs of other work: NAME@2, NAME@3, …
# A tree has one live run, so that results never mix. Notes about a tree are in NOTES.

# use_tree NUMBER: makes this the current tree; 1 is the main tree.
use_tree() {
  REPO_DIR=$MAIN_DIR NOTES=$BOX_HOME/steps/$REPO_KEY
  case $VENV in
    /*) VENV_DIR=$VENV ;;
    '~/'*) VENV_DIR=$(expand_home "$VENV") ;;
    *) VENV_DIR=$REPO_DIR/$VENV ;;
  esac
  TREE_NUMBER=$1 MAIN_VENV=$VENV_DIR VENV_NOTES=$NOTES WORK='' PYTHON_INPUTS='' SOURCES_OF=''
  [ "$1" = 1 ] || { REPO_DIR=$MAIN_DIR@$1 && NOTES=$NOTES/beside/$1; }
  PLACED=$NOTES/placed
}

# find_environment: for a tree beside, once its files are placed. Uses the main tree's environment if it is unchanged,
# made from the same, and does not contain the repository itself; else one of its own. Sets VENV_DIR. What a sweep's
# cells need is made where the main tree's is, if no run uses that: once, not for each.
find_environment() {
  if [ "$TREE_NUMBER" = 1 ] || is_shared_venv; then return; fi
  VENV_DIR=$MAIN_VENV VENV_NOTES=$BOX_HOME/steps/$REPO_KEY PYTHON_INPUTS='' WORK=''
  find_stamp python
  inputs_python
  if [ -z "$HOLDS_PROJECT" ] && { { is_line "$STAMP" "$INPUTS" && check_python; } || { is_cell && ! is_held "$MAIN_DIR" >/dev/null; }; }; then return; fi
  VENV_DIR=$REPO_DIR/$VENV VENV_NOTES=$NOTES
}

# Whether the profile says where the environment is: then all trees share it.
is_shared_venv() { [[ $VENV == [/~]* ]]; }

# choose_tree: for a new run of REPO_TREE and TRAIN_COMMAND, with the lock held: the main tree if it is free, else the
# one beside it in which the same ran last, else one that no run has used, else a new one. With BESIDE only the last two,
# or the main tree before it is made; a sweep's cell that is queued again also gets the tree that it had.
choose_tree() {
  local notes unused=''
  use_tree 1
  { [ -n "$BESIDE" ] && is_tree; } || is_held "$REPO_DIR" >/dev/null || return 0
  for notes in "$NOTES"/beside/{1,*}/; do
    notes=${notes%/}
    [ -d "$notes" ] || [ "${notes##*/}" = 1 ] || continue
    use_tree "${notes##*/}"
    if is_held "$REPO_DIR" >/dev/null; then continue; fi
    if ! LAST_RUN=$(last_run_in "$REPO_DIR"); then
      [ "$TREE_NUMBER" = 1 ] || unused=${unused:-$TREE_NUMBER}
    elif is_same_again "$LAST_RUN"; then
      return
    fi
  done
  [ -n "$unused" ] || unused=$(free_number)
  use_tree "$unused"
  mkdir -p "$NOTES"
  write_if_changed "$NOTES/repo.dir" 600 "$REPO_DIR"$'\n'
}

# Whether this tree was placed before, so that one state can replace another.
is_tree() { [ -d "$REPO_DIR/.git" ] && [ -e "$NOTES/repo.placed" ]; }

is_cell() { [[ $RUN_VARIABLES == *BOXSTRAP_CELL=* ]]; }

# is_held FOLDER: prints the run that holds this tree: it is alive or queued there, or its environment is there.
is_held() { alive_in "$BOX_HOME" "$REPO_KEY" "$1" || user_of "$1"; }

# user_of FOLDER: prints the run whose environment is this folder, or is in it; 1 if none uses it.
user_of() {
  local dir venv
  for dir in "$BOX_HOME"/runs/*/*/; do
    dir=${dir%/} venv=
    [ ! -f "$dir/exit" ] || continue
    { read -r venv <"$dir/venv"; } 2>/dev/null || :
    case $venv/ in "$1"/*) ;; *) continue ;; esac
    find_state "$dir"
    case $_state in running | queued*) printf '%s\n' "$dir" && return ;; esac
  done
  return 1
}

# last_run_in FOLDER: prints the newest run that was made in it; 1 if there is none.
last_run_in() {
  local dir where newest=''
  for dir in "$BOX_HOME"/runs/*/*/; do
    where=
    { read -r where <"$dir/dir"; } 2>/dev/null || :
    [ "$where" = "$1" ] || continue
    if is_newer "$dir" "$newest"; then newest=${dir%/}; fi
  done
  [ -n "$newest" ] && printf '%s\n' "$newest"
}

# is_same_again RUN: whether its tree is as it was placed, for this same content, and its command is this one. With BESIDE
# also whether it was of the same sweep's same cell.
is_same_again() {
  local VENV_DIR command
  [ -z "$BESIDE" ] || { is_cell && [ "${1%-*}" = "${1%/*}/$TRAIN_SESSION" ]; } || return
  { read -r VENV_DIR <"$1/venv" && command=$(<"$1/command"); } 2>/dev/null || return
  [ -n "$REPO_TREE" ] && is_content "$1" && [ "$command" = "$(absolute_command)" ] && placed_git diff --quiet --no-ext-diff
} 2>/dev/null

# Prints a number that no tree has or had, so that the records of old runs stay true.
free_number() {
  local number=2
  while [ -e "$MAIN_DIR@$number" ] || [ -L "$MAIN_DIR@$number" ] || [ -e "$BOX_HOME/steps/$REPO_KEY/beside/$number" ] ||
    last_run_in "$MAIN_DIR@$number" >/dev/null; do
    number=$((number + 1))
  done
  printf '%s\n' "$number"
}
