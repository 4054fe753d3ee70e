# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# ask: what `module`, a program of boxstrap's on this box, answers to `request`, a document of JSON; its `text` may come
# along. It, a Python for it and `tool` are waited for, `waits` tenths of a second; else the answer is `lacking`.

find_home
waited=0
until command -v "$tool" >/dev/null && find_program "$file"; do
  if [ "$waited" -ge "$waits" ]; then
    if [ -z "$lacking" ] && [ ! -d "$box_home/steps" ] && [ ! -d "$box_home/runs" ]; then
      # No setup came so far that it could have made anything.
      [ ! -d "$box_home" ] || printf '{"kind": "home"}\n'
      lacking='{"kind": "over", "told": 0}'
    fi
    printf '%s\n' "$lacking" && exit
  fi
  waited=$((waited + 1))
  sleep 0.1
done
# No list of processes shows it: who looks there for a run's command finds only the run.
export BOXSTRAP_REQUEST="$request"
[ -z "$text" ] || exec "$python" -I -S -B -X utf8 -c "$text" "${program%/onbox/*}" "$box_home"
exec "$python" -I -S -B -X utf8 "$program" "$module" "$box_home"
