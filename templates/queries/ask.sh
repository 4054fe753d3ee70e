# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# ask: what `module`, a program of boxstrap's on this box, answers to `request`, a document of JSON.
# library: queries/program

find_home
find_program "$module"
python=$box_home/agent/bin/python
[ -x "$python" ] || python=python3
"$python" -I -S -B "$program" "$module" "$box_home" "$request" </dev/null
