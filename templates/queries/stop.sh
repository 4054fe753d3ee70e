# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# stop: ends a run, or the setup at work. A run's last output stays in its log.
# library: queries/program

find_home
if [ "$what" = setup ]; then
  holder=$(sed -n 1p "$box_home/lock" 2>/dev/null)
  if alive "$holder"; then
    kill -TERM "${holder%% *}" && printf 'stopped\tsetup\n'
    # The profile's `prepare` may have work to save.
    until=$(($(date +%s) + 60))
    while alive "$holder" && [ "$(date +%s)" -lt "$until" ]; do sleep 0.1; done
  fi
  exit 0
fi
# shellcheck disable=SC2086 # an empty word means all
set -- "$box_home"/runs/${repo_key:-*}/${what:-*}
! find_program run_processes || exec "$python" -I -S -B "$program" "$module" stop "$@"
