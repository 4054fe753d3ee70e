# shellcheck shell=bash
# stamps: a step is left out only when its inputs are those of its last success and its check agrees.

stamp_of() {
  case " $REPO_STEPS " in
    *" $1 "*) printf '%s\n' "$BOX_HOME/steps/$REPO_KEY/$1.ok" ;;
    *) printf '%s\n' "$BOX_HOME/steps/$1.ok" ;;
  esac
}

# reason STEP: why it would run (asked, new, changed, broken), or nothing if it is right.
reason() {
  local stamp
  stamp=$(stamp_of "$1")
  if [ "$1" = "$ONLY" ] || { [ "$1" = train ] && [ -n "$RESTART" ]; }; then
    printf 'asked\n'
  elif [ ! -f "$stamp" ]; then
    printf 'new\n'
  elif [ "$(cat "$stamp")" != "$("inputs_$1")" ]; then
    printf 'changed\n'
  elif ! "check_$1" >&2; then
    printf 'broken\n'
  fi
}

# While a run is alive its tree and environment stay as they are, and no other run is begun.
left_alone() {
  case " $REPO_STEPS " in *" $1 "*) [ -n "$ALIVE_RUN" ] ;; *) return 1 ;; esac
}

write_stamp() {
  local stamp
  stamp=$(stamp_of "$1")
  mkdir -p "${stamp%/*}"
  "inputs_$1" | write_file "$stamp" 600
}
