# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# run_end: is this run over, how long is its log, when did it end, and when did it begin? Is its disk low?

find_home
run=$box_home/runs/$repo_key/$name
ended=''
when() { [ ! -f "$run/$1" ] || stat -c %Y "$run/$1" 2>/dev/null; }
[ ! -f "$run/ended" ] || [ ! -f "$run/exit" ] || read -r ended <"$run/ended"
find_state "$run"
printf '%s\t%s\t%s\t%s\t%s\n' "$_state${ended:+ $ended}" "$(stat -c %s "$run/log" 2>/dev/null || printf 0)" \
  "$(when exit)" "$(when pid)" "$(head -c 2048 "$run/disk_low" 2>/dev/null | tr '\n' '\t')"
