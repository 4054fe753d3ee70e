# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# top: samples this box again and again, until this connection ends.
# library: queries/program

find_home
if ! find_program runs.top_stream || [ "$python" = python3 ]; then
  printf '{"missing":true}\n'
  exit 0
fi
exec "$python" -I -B "$program" "$module" --every "$every" --runs "$box_home/runs"
