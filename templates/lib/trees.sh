# shellcheck shell=bash disable=SC2034,SC2088,SC2153,SC2154 # set here or elsewhere; rendered; a profile's ~ is literal
# trees: a repository's main tree, its folder, and trees beside it for runs of other work: NAME@2, NAME@3, …
# A tree has one live run, so that results never mix. Notes about a tree are in NOTES.

# use_tree NUMBER: makes this the current tree; 1 is the main tree.
use_tree() {
  REPO_DIR=$MAIN_DIR NOTES=$BOX_HOME/steps/$REPO_KEY
  case $VENV in
    /*) MAIN_VENV=$VENV ;;
    '~/'*) MAIN_VENV=$(expand_home "$VENV") ;;
    *) MAIN_VENV=$REPO_DIR/$VENV ;;
  esac
  TREE_NUMBER=$1
  [ "$1" = 1 ] || { REPO_DIR=$MAIN_DIR@$1 && NOTES=$NOTES/beside/$1; }
}

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
