# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# nodes: checks this box as one of the nodes of a training, with the others; see onbox/nodes/check.py.

find_home
exec "$box_home/agent/bin/python" -I -S -B "$box_home/box/current/onbox/__main__.py" nodes.check "$box_home" "$tree" "$venv" "$gpus"
