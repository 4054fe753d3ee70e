# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# wait: prints a run's state each time it changes, until it is over or nobody listens any more; when it ended, and when
# it started.

find_home
run=$box_home/runs/$repo_key/$name
when() { [ ! -f "$run/$1" ] || stat -c %Y "$run/$1" 2>/dev/null; }
told=
while :; do
  find_state "$run"
  state=$_state
  ended=
  [ ! -f "$run/ended" ] || [ ! -f "$run/exit" ] || read -r ended <"$run/ended"
  [ "$state" = "$told" ] ||
    printf '%s\t%s\t%s\n' "$state${ended:+ $ended}" "$(when exit)" "$(when pid)"
  told=$state
  case $state in running | queued) ;; *) break ;; esac
  kill -0 "$PPID" 2>/dev/null || break
  sleep 1
done
