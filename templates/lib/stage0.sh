# shellcheck shell=bash disable=SC1090,SC2034,SC2088,SC2154 # set here, read elsewhere; a profile's ~ is literal; the recipe sets it
# stage0: what a recipe does before it has the program: it looks whether this box can be set up at all.

have() { command -v "$1" >/dev/null 2>&1; }

# Takes back what an environment changes about shells and their tools. A login does so before its shell starts; a door
# starts this one directly.
reset_shell() {
  unset BASH_COMPAT BASH_ENV BASH_XTRACEFD CDPATH ENV EXECIGNORE FUNCNEST
  unset GLOBIGNORE GLOBSORT GREP_OPTIONS POSIXLY_CORRECT TMOUT
  # They can't be unset: no other shell gets them.
  export -n BASHOPTS SHELLOPTS
  # Messages are read, and numbers computed with. An earlier LC_ALL would count more.
  unset LC_ALL LANGUAGE
  export LC_MESSAGES=C LC_NUMERIC=C
  [ -w "${TMPDIR:-/tmp}" ] || unset TMPDIR
}

# Sets NOW to the time in seconds with a fraction; starts no process if bash knows the time itself.
now() { NOW=${EPOCHREALTIME:-$(date +%s.%N)}; }

# Prints a path of the profile as the box needs it: `~/` is the box's home, the rest is literal.
expand_home() {
  case $1 in
    '~') printf '%s\n' "$HOME" ;;
    '~/'*) printf '%s\n' "$HOME/${1#'~/'}" ;;
    *) printf '%s\n' "$1" ;;
  esac
}

# onbox PROGRAM ARGUMENT...: runs one of boxstrap's programs in Python, in the box's own where ours is not made yet. Names
# of files may be any bytes, whatever the box's locale is.
onbox() { find_python && "$PYTHON" -I -S -B -X utf8 "$ONBOX" "$@"; }

# The box's package manager: the first one that is installed is used.
MANAGERS=(apt-get dnf yum microdnf zypper pacman apk)

manager() {
  local name
  for name in "${MANAGERS[@]}"; do
    if have "$name"; then printf '%s\n' "$name" && return; fi
  done
  return 1
}

can_install() { [ -z "$IS_LOCAL" ] && manager >/dev/null && { [ "$EUID" -eq 0 ] || sudo -n true 2>/dev/null; }; }

# step NAME: the recipe's steps, in their order.
step() { STEPS+=("$1"); }

# Called after the recipe's values are set.
begin_box() {
  set -eu
  reset_shell
  LC_ALL=C
  umask 022
  case $WORKDIR in '~'*) WORKDIR=$(expand_home "$WORKDIR") ;; esac
  BOX_HOME=$WORKDIR/.boxstrap PROGRAMS=$WORKDIR/.boxstrap/box/current
  [ -z "${PROGRAM-}" ] || PROGRAMS=$BOX_HOME/box/${PROGRAM:0:16}
  ONBOX=$PROGRAMS/onbox/__main__.py
}

# Loads the program's shell from its folder: the values of the plainest profile, then the functions, then the recipe's
# values again. 1 if it is not there.
load_program() {
  local file
  [ -f "$PROGRAMS/defaults.sh" ] || { printf 'the program is not in %s: boxstrap setup sends it\n' "$PROGRAMS" >&2 && return 1; }
  for file in "$PROGRAMS"/defaults.sh "$PROGRAMS"/lib/*.sh; do . "$file"; done
  recipe
}

# find_python: sets PYTHON to the box's own, which worked when it was made, or to another that works; 1 if none does.
find_python() {
  PYTHON=$BOX_HOME/agent/bin/python
  [ ! -x "$PYTHON" ] || return 0
  PYTHON=python3
  python3 -I -S -c 'import sys, json, fcntl, hashlib, subprocess; sys.exit(sys.version_info < (3, 8))' 2>/dev/null
}

# plan SCRIPT [WORD...]: which steps of it would run, and why. Where no program answers, nothing was done.
plan() {
  local step why=new
  # A plan from memory asks the one that set this box up.
  [ -f "$ONBOX" ] || ONBOX=$BOX_HOME/box/current/onbox/__main__.py
  ! onbox setup.plan "$1" "${@:2}" 2>/dev/null || return 0
  for step in "${STEPS[@]}"; do printf 'plan\t%s\t%s\n' "$step" "$why" && why=after; done
}

# run ID SECONDS [WORD...]: the setup itself; waits that long for another one to end. Standard input has the token that
# opens a private repository, if any: no process but git has it in its environment.
run() {
  find_python || { LACKS=$(lacks) && load_program && bring_python "$@"; } || return
  exec "$PYTHON" -I -S -B -X utf8 "$ONBOX" setup.main "$0" "$@"
}
