# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# run_end: is this run over, how long is its log, and when did it end?

find_home
run=$box_home/runs/$repo_key/$name
ended=
[ ! -f "$run/ended" ] || [ ! -f "$run/exit" ] || read -r ended <"$run/ended"
printf '%s\t%s\t%s\n' "$(run_state "$run")${ended:+ $ended}" "$(stat -c %s "$run/log" 2>/dev/null || printf 0)" "$(stat -c %Y "$run/exit" 2>/dev/null)"
