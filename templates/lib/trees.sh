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

# Notes what identifies this repository, and which folder is its own, as soon as that is known (lib/repository.sh).
note_repository() {
  local key
  case " ${STEPS[*]} " in *' repo '*) ;; *) return 0 ;; esac
  [ -d "$NOTES" ] || mkdir -p "$NOTES"
  [ -z "$REPO_ROOT" ] || write_if_changed "$NOTES/repo.root" 600 "$REPO_ROOT"$'\n'
  is_strange || write_if_changed "$NOTES/repo.dir" 600 "$REPO_DIR"$'\n'
  for key in "$SENT_KEY" "$REPO_USUAL_KEY"; do
    # A key that a repository of this box has as its own stays its own.
    case $key in '' | "$REPO_KEY") continue ;; esac
    if [ -e "$BOX_HOME/steps/$key/setup.sh" ] || [ -e "$BOX_HOME/runs/$key" ]; then continue; fi
    mkdir -p "$BOX_HOME/steps/$key"
    write_if_changed "$BOX_HOME/steps/$key/repo.key" 600 "$REPO_KEY"$'\n'
  done
}

# Whether this repository's folder contains something that boxstrap did not make.
is_strange() {
  { [ -e "$REPO_DIR" ] || [ -L "$REPO_DIR" ]; } &&
    [ ! -e "$NOTES/repo.ok" ] && [ ! -e "$NOTES/repo.placed" ] && [ ! -d "$RUNS" ] &&
    ! placed_by_us "$REPO_DIR" && [ -n "$(ls -A -- "$REPO_DIR" 2>/dev/null)" ]
}
