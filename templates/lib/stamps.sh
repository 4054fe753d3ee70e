# shellcheck shell=bash disable=SC2034 # WHY and INPUTS are read elsewhere
# stamps: a step is left out only when its inputs are those of its last success and its check agrees.

find_stamp() {
  if [ "$1" = python ]; then STAMP=$VENV_NOTES/python.ok && return; fi # full
  case " $REPO_STEPS " in
    *" $1 "*) STAMP=$NOTES/$1.ok ;;
    *) STAMP=$BOX_HOME/steps/$1.ok ;;
  esac
}

# find_reason STEP: WHY it would run (asked, new, changed, broken); empty if it is right.
find_reason() {
  WHY=
  find_stamp "$1"
  case ",$ONLY," in *",$1,"*) WHY=asked ;; esac # full
  if [ "$1" = train ] && [ -n "$RESTART" ]; then WHY=asked; fi
  [ -z "$WHY" ] || return 0
  "inputs_$1"
  if [ ! -f "$STAMP" ]; then
    WHY=new
  elif ! is_text "$STAMP" "$INPUTS"$'\n'; then
    WHY=changed
    WHY=$(what_changed "$1" "${TEXT%$'\n'}") # full
  elif ! is_right "$1" >&2; then
    WHY=broken
  fi
}

declare -A CHECKING=() # full

# What takes longest is looked at beside the rest: thousands of folders, and what git says.
begin_checks() {
  local name
  for name in "${STEPS[@]}"; do
    case $name in repo | python) "check_$name" >/dev/null 2>&1 & CHECKING[$name]=$! ;; esac
  done
}

# Whether a step's check agrees; it may have been begun.
is_right() {
  if [ -n "${CHECKING[$1]-}" ]; then wait "${CHECKING[$1]}" && return; fi # full
  "check_$1"
}

# why_right STEP: why one that is right is left as it is, in WHY: a training that died with the box is not begun
# again by itself.
why_right() {
  WHY='done'
  [ "$1" != train ] || ! in_state "$(run_of "$WORK")" died || WHY=died
}

# what_changed STEP STAMP: in a person's word, where that alone changed; else in the general one.
what_changed() {
  local word rest last
  case $1 in
    repo)
      word='commit' rest='s/^v1 [0-9a-f+]+ //'
      case $2 in "v1 $REPO_COMMIT"*) word='snapshot' ;; esac
      ;;
    python) word='requirements' rest='s/ (\$.)?[0-9a-f]{64}[ \\].*//' ;;
    train)
      last=$(find "$RUNS" -mindepth 1 -maxdepth 1 -type d -printf '%T@ %p\n' 2>/dev/null | sort -n | tail -n 1)
      last=${last#* }
      if ! is_content "$last" 2>/dev/null; then
        word='commit'
      elif ! is_text "$last/command" "$(absolute_command)"$'\n'; then
        word='command'
      fi
      printf '%s\n' "${word-changed}"
      return
      ;;
    *) rest='' ;;
  esac
  [ -n "$rest" ] && [ "$(sed -E "$rest" <<<"$2")" = "$(sed -E "$rest" <<<"$INPUTS")" ] || word=changed
  printf '%s\n' "$word"
}

# While a run is alive its tree and environment stay as they are, and no other run is begun; the run of this
# very work may lack its stamp or its session. No GPU is tried while anything of ours computes on the box.
left_alone() {
  case $1:" $REPO_STEPS " in
    smoke:*) any_alive_run ;; # full
    *" $1 "*) [ -n "$ALIVE_RUN" ] && ! { [ "$1" = train ] && is_of_this_work "$ALIVE_RUN"; } ;;
    *) return 1 ;;
  esac
}

write_stamp() {
  find_stamp "$1"
  "inputs_$1"
  [ -d "${STAMP%/*}" ] || # full
    mkdir -p "${STAMP%/*}"
  write_file "$STAMP" 600 "$INPUTS"$'\n'
}
