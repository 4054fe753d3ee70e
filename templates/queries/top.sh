# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# top: samples this box again and again, until this connection ends.
# library: queries/program

find_home
# An earlier version has another name for it.
find_program runs.top_stream || program=$box_home/box/watch.py
if [ ! -x "$box_home/agent/bin/python" ] || [ ! -f "$program" ]; then
  printf '{"missing":true}\n'
  exit 0
fi
exec "$box_home/agent/bin/python" -I -B "$program" ${module:+"$module"} --every "$every" --runs "$box_home/runs"
