# shellcheck shell=bash disable=SC1090,SC2034,SC2088,SC2154 # set here, read elsewhere; a profile's ~ is literal; the recipe sets it
# stage0: what a recipe does before it has the program: it looks whether this box can be set up at all.

# The box's package manager: the first one that is installed is used.
MANAGERS=(apt-get dnf yum microdnf zypper pacman apk)

manager() {
  local name
  for name in "${MANAGERS[@]}"; do
    if have "$name"; then printf '%s\n' "$name" && return; fi
  done
  return 1
}

can_install() {
  [ -z "$IS_LOCAL" ] &&
    manager >/dev/null && { [ "$EUID" -eq 0 ] || sudo -n true 2>/dev/null; }
}

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
}

# Loads the program from its folder: the values of the plainest profile, then the functions, then the recipe's values
# again. 1 if it is not there.
load_program() {
  local file
  recipe
  begin_box
  [ -f "$PROGRAMS/defaults.sh" ] || { printf 'the program is not in %s: boxstrap setup sends it\n' "$PROGRAMS" >&2 && return 1; }
  for file in "$PROGRAMS"/defaults.sh "$PROGRAMS"/{lib,steps}/*.sh; do . "$file"; done
  recipe
}
