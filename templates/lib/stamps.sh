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
    [[ $TEXT != "$INPUTS"$'\n'* ]] || WHY=broken
  elif ! "check_$1" >&2; then
    WHY=broken
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
