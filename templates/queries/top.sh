# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# top: samples this box again and again, until this connection ends.

find_home
stream=$box_home/box/top_stream.py
# An earlier version has another name for it.
[ -f "$stream" ] || stream=$box_home/box/watch.py
if [ ! -x "$box_home/agent/bin/python" ] || [ ! -f "$stream" ]; then
  printf '{"missing":true}\n'
  exit 0
fi
exec "$box_home/agent/bin/python" -B "$stream" --every "$every" --runs "$box_home/runs"
