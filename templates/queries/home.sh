# shellcheck shell=sh disable=SC2154,SC2034 # the variables stand in front when it is sent
# home: finds boxstrap's folder on this box, and its program.

find_home() {
  # shellcheck disable=SC2088 # the profile's own tilde
  case $workdir in
    '') box_home=$(readlink -f "$HOME/.boxstrap" 2>/dev/null || printf '%s' "$HOME/.boxstrap") ;;
    '~') box_home=$HOME/.boxstrap ;;
    '~/'*) box_home=$HOME/${workdir#??}/.boxstrap ;;
    *) box_home=$workdir/.boxstrap ;;
  esac
  # Nothing in it is used, not even to look; preflight says whose it is.
  ! is_anothers "$box_home" || box_home=/dev/null/.boxstrap
}

# find_program FILE: sets `python` and `program`, which starts it; 1 if there is none, or an older one without FILE.
find_program() {
  # Under its digest: what is started by it may outlive the next setup.
  program=$(cd -P "$box_home/box/current/onbox" 2>/dev/null && pwd)/__main__.py
  [ -f "${program%/*}/$1" ] || return
  python=$box_home/agent/bin/python
  [ ! -x "$python" ] || return 0
  python=python3
  python3 -I -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null
}

# Removes this box's secrets from standard input, with the program that was sent along. Without the agent's Python (a first
# setup) the text passes: the client redacts what it knows.
redacted() {
  python=$box_home/agent/bin/python
  if [ -x "$python" ]; then "$python" -I -c "$redactor" "$skip" "$same_length" "$redact" "$box_home"; else cat; fi
}
