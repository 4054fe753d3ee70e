# shellcheck shell=sh disable=SC2034,SC2154 # the variables stand in front when it is sent
# program: finds a Python program of boxstrap's on this box.

# find_program MODULE: sets `program` and `module`, which start it; 1 if there is none.
find_program() {
  program=$box_home/box/onbox/__main__.py module=$1
  [ -f "$program" ]
}
