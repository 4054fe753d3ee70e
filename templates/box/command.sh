# shellcheck shell=bash
# command: what the shell of a run's command reads first.
# Asked to end, it waits for the command at work, ends as that did, and begins no other.
trap exit TERM

# boxstrap_end CODE PART...: of a pipeline what each part ended with. Where the runner was killed nobody else is left who
# could write down the exit code; there is room for it on a full disk too.
boxstrap_end() {
  local runner=none stat=''
  case $(<"$BOXSTRAP_RUN/command") in *'|'*) printf 'pipeline %s\n' "${*:2}" >"$BOXSTRAP_RUN/ended" ;; esac
  { read -r runner _ <"$BOXSTRAP_RUN/pid" && read -r stat <"/proc/$runner/stat"; } 2>/dev/null
  case ${stat##*) } in '' | Z*) ;; *) return ;; esac
  [ ! -e "$BOXSTRAP_RUN/exit" ] || return
  [ -s "$BOXSTRAP_RUN/ended" ] || printf 'exit %s\n' "$1" >"$BOXSTRAP_RUN/ended"
  printf '%s\n' "$1" 1<>"$BOXSTRAP_RUN/exit.new" && mv -f "$BOXSTRAP_RUN/exit.new" "$BOXSTRAP_RUN/exit"
}
trap 'boxstrap_end "$?" "${PIPESTATUS[@]}"' EXIT
