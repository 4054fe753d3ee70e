# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# run_end: is this run over, and how long is its log?

find_home
run=$box_home/runs/$repo_key/$name
printf '%s\t%s\n' "$(run_state "$run")" "$(stat -c %s "$run/log" 2>/dev/null || printf 0)"
