# shellcheck shell=bash
# command: sourced first by the shell that runs a run's command.
# On TERM that shell waits for the current command, exits with its exit code, and starts no other.
trap exit TERM

# boxstrap_end CODE PART...: writes how each part of a pipeline ended. If the runner was killed, it also writes the exit
# code, since nobody else is left to do it; there is room for it even on a full disk.
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
