# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# run_end: is this run over, how long is its log, and when did it end?

find_home
run=$box_home/runs/$repo_key/$name
ended='' over=''
[ ! -f "$run/ended" ] || [ ! -f "$run/exit" ] || read -r ended <"$run/ended"
find_state "$run"
[ ! -f "$run/exit" ] || over=$(stat -c %Y "$run/exit" 2>/dev/null)
printf '%s\t%s\t%s\n' "$_state${ended:+ $ended}" "$(stat -c %s "$run/log" 2>/dev/null || printf 0)" "$over"
