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
  TREE_NUMBER=$1 MAIN_VENV=$VENV_DIR VENV_NOTES=$NOTES PYTHON_INPUTS='' SOURCES_OF=''
  [ "$1" = 1 ] || { REPO_DIR=$MAIN_DIR@$1 && NOTES=$NOTES/beside/$1; }
  PLACED=$NOTES/placed
}

# find_environment: for a tree beside, once its files are placed. Uses the main tree's environment if it is unchanged,
# made from the same, and does not contain the repository itself; else one of its own. Sets VENV_DIR. What a sweep's
# cells need is made where the main tree's is, if no run uses that: once, not for each.
find_environment() {
  if [ "$TREE_NUMBER" = 1 ] || is_shared_venv; then return; fi
  VENV_DIR=$MAIN_VENV VENV_NOTES=$BOX_HOME/steps/$REPO_KEY PYTHON_INPUTS=''
  find_stamp python
  inputs_python
  if [ -z "$HOLDS_PROJECT" ] && { { is_line "$STAMP" "$INPUTS" && check_python; } || { is_cell && ! live_run holds "$REPO_KEY" "$MAIN_DIR" >/dev/null; }; }; then return; fi
  VENV_DIR=$REPO_DIR/$VENV VENV_NOTES=$NOTES
}

# Whether the profile says where the environment is: then all trees share it.
is_shared_venv() { [[ $VENV == [/~]* ]]; }

# choose_tree: for a new run of REPO_TREE and TRAIN_COMMAND, with the lock held: see onbox/work/trees.py. Where no Python
# answers, as before a first setup, it is the main one, if no run has that.
choose_tree() {
  local cell='' number
  ! is_cell || cell=yes
  number=$(onbox work.trees choose "$BOX_HOME" "$REPO_KEY" "$MAIN_DIR" "$REPO_TREE" "$TRAIN_COMMAND" "$TRAIN_SESSION" "$BESIDE" "$cell") ||
    ! live_run holds "$REPO_KEY" "$MAIN_DIR" >/dev/null || return 1
  use_tree "${number:-1}"
}

is_cell() { [[ $RUN_VARIABLES == *BOXSTRAP_CELL=* ]]; }
