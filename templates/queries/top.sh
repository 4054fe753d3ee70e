# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# top: looks at this box again and again, until this connection ends.

find_home
if [ ! -x "$box_home/agent/bin/python" ] || [ ! -f "$box_home/box/watch.py" ]; then
  printf '{"missing":true}\n'
  exit 0
fi
exec "$box_home/agent/bin/python" -B "$box_home/box/watch.py" --every "$every" --runs "$box_home/runs"
