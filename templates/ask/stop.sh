# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# stop: ends a run, or the setup at work. A run's last words stay in its log.

find_home
if [ "$what" = setup ]; then
  holder=$(sed -n 1p "$box_home/lock" 2>/dev/null)
  if alive "$holder"; then
    kill -TERM "${holder%% *}" && printf 'stopped\tsetup\n'
  fi
  exit 0
fi
for run in "$box_home"/runs/*/*/; do
  run=${run%/}
  key=${run%/*}
  [ -z "$repo_key" ] || [ "${key##*/}" = "$repo_key" ] || continue
  [ -z "$what" ] || [ "${run##*/}" = "$what" ] || continue
  [ "$(run_state "$run")" = running ] || continue
  kill -TERM "$(sed -n '1s/ .*//p' "$run/pid")" 2>/dev/null
  waited=0
  while [ "$(run_state "$run")" = running ] && [ "$waited" -lt 150 ]; do
    waited=$((waited + 1))
    sleep 0.1
  done
  printf 'stopped\t%s\t%s\n' "${run##*/}" "$(run_state "$run")"
done
