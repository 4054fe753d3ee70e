# shellcheck shell=bash disable=SC2034 # WHY and INPUTS are read elsewhere
# stamps: a step is skipped only if its inputs are those of its last success and its check agrees.

find_stamp() {
  case " $REPO_STEPS " in
    *" $1 "*) STAMP=$NOTES/$1.ok ;;
    *) STAMP=$BOX_HOME/steps/$1.ok ;;
  esac
}

# find_why STEP: sets WHY to why it would run, or to why not: done, alive, died, failed. One in Python was asked, and
# never ran where it can't be.
find_why() {
  if is_in_python "$1"; then WHY=${SAID[$1]:-new} && return; fi
  find_reason "$1"
  if [ -z "$WHY" ]; then
    WHY='done'
  elif left_alone "$1"; then
    WHY=alive
  fi
}

# is_skipped: whether WHY is why a step is left as it is.
is_skipped() { case $WHY in done | alive | died | failed) ;; *) return 1 ;; esac; }

# find_reason STEP: sets WHY to why it would run (asked, new, broken, or what changed); empty if it is right.
find_reason() {
  WHY=
  find_stamp "$1"
  case ",$ONLY,$REDO," in *",$1,"*) WHY=asked ;; esac
  [ -z "$WHY" ] || return 0
  "inputs_$1"
  if [ ! -f "$STAMP" ]; then
    WHY=new
  elif ! is_text "$STAMP" "$INPUTS"$'\n'; then
    WHY=changed
    what_changed "$1" "${TEXT%%$'\n'*}"
    [[ $TEXT != "$INPUTS"$'\n'* ]] || WHY=broken
  elif ! is_right "$1" >&2; then
    WHY=broken
  fi
}

# Starts the slowest check in parallel with the rest: what git says.
begin_checks() {
  case " ${STEPS[*]} " in *' repo '*) ;; *) return 0 ;; esac
  check_repo 2>/dev/null & # it prints what was edited
  CHECKING=$!
}

# Whether a step's check agrees; that of `repo` may have been started already.
is_right() {
  if [ "$1" = repo ] && [ -n "${CHECKING-}" ]; then wait "$CHECKING" && return; fi
  "check_$1"
}

# what_changed STEP STAMP: sets WHY to the one thing that changed, in the user's terms; else to `changed`.
what_changed() {
  WHY=changed
  if [ "$1" = repo ] && [ "${2#v1 * }" = "${INPUTS#v1 * }" ]; then
    case $2 in "v1 $REPO_COMMIT"*) WHY='snapshot' ;; *) WHY='commit' ;; esac
  fi
}

# While a run is alive, its tree and environment stay as they are.
left_alone() {
  if is_in_python "$1"; then
    [ -n "${ALONE[$1]-}" ]
  else
    [ -n "$ALIVE_RUN" ] && [[ " $REPO_STEPS " == *" $1 "* ]]
  fi
}

# is_spoiled STEP: whether it ran since its last success, and did not succeed.
is_spoiled() { find_stamp "$1" && is_line "$STAMP" unfinished; }

write_stamp() {
  find_stamp "$1"
  "inputs_$1"
  [ -d "${STAMP%/*}" ] || mkdir -p "${STAMP%/*}"
  write_file "$STAMP" 600 "$INPUTS"$'\n'
}
