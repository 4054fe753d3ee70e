# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# stop: ends the setup at work, which may be one that brings the first Python.

find_home
holder=$(sed -n 1p "$box_home/lock" 2>/dev/null)
alive "$holder" && kill -TERM "${holder%% *}" && printf 'stopped\tsetup\n'
# The profile's `prepare` may have work to save.
until=$(($(date +%s) + 60))
while alive "$holder" && [ "$(date +%s)" -lt "$until" ]; do sleep 0.1; done
