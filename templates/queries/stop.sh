# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# stop: ends a run, or the setup at work. A run's last output stays in its log.
# library: run_processes queue

find_home
if [ "$what" = setup ]; then
  holder=$(sed -n 1p "$box_home/lock" 2>/dev/null)
  if alive "$holder"; then
    kill -TERM "${holder%% *}" && printf 'stopped\tsetup\n'
    # The profile's `prepare` may have work to save.
    await_end "$holder" $(($(date +%s) + 60))
  fi
  exit 0
fi
for run in "$box_home"/runs/*/*/; do
  run=${run%/}
  key=${run%/*}
  [ -z "$repo_key" ] || [ "${key##*/}" = "$repo_key" ] || continue
  [ -z "$what" ] || [ "${run##*/}" = "$what" ] || continue
  if [ "$(run_state "$run")" = queued ] && take_out "$run" stop; then
    printf 'stopped\t%s\t%s\n' "${run##*/}" "$(run_state "$run")"
    continue
  fi
  [ "$(run_state "$run")" = running ] || { [ -f "$run/left" ] && [ "$(left_of "$run")" -gt 0 ]; } || continue
  stop_run "$run" | while IFS= read -r left; do printf 'left\t%s\t%s\n' "${run##*/}" "$left"; done
  printf 'stopped\t%s\t%s\n' "${run##*/}" "$(run_state "$run")"
done
