# shellcheck shell=sh disable=SC2034,SC2154 # the variables stand in front when it is sent
# program: finds a Python program of boxstrap's on this box.

# find_program MODULE: sets `python`, `program` and `module`, which start it; 1 if there is none.
find_program() {
  # Under its digest: what is started by it may outlive the next setup.
  program=$(cd -P "$box_home/box/current" 2>/dev/null && pwd)/onbox/__main__.py module=$1
  python=$box_home/agent/bin/python
  [ -x "$python" ] || python=python3
  [ -f "$program" ] && command -v "$python" >/dev/null
}
