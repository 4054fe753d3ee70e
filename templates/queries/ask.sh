# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# ask: what `module`, a program of boxstrap's on this box, answers to `request`, a document of JSON.
# library: queries/program

find_home
if ! find_program "$module" && [ ! -d "$box_home/steps" ] && [ ! -d "$box_home/runs" ]; then
  # No setup came so far that it could have made anything.
  [ ! -d "$box_home" ] || printf '{"kind": "home"}\n'
  printf '{"kind": "over", "told": 0}\n'
  exit
fi
exec "$python" -I -S -B "$program" "$module" "$box_home" "$request"
