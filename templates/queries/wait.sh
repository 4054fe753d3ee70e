# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# wait: prints a run's state each time it changes, until it is over or nobody listens any more; when it ended, and when
# it started. `low FREE TOTAL SECONDS` when its disk will soon be full. `old KIND SECONDS TEXT` and `news …`: what the
# monitor found before, and since then; see news.py.

find_home
run=$box_home/runs/$repo_key/$name
when() { [ ! -f "$run/$1" ] || stat -c %Y "$run/$1" 2>/dev/null; }
told='' low='' fresh=old shown=0
show_news() {
  at=0
  while IFS= read -r line; do
    at=$((at + 1))
    [ "$at" -le "$shown" ] || printf '%s\t%s\n' "$fresh" "$line"
  done <"$run/news"
  shown=$at
}
while :; do
  find_state "$run"
  state=$_state
  ended=
  [ ! -f "$run/ended" ] || [ ! -f "$run/exit" ] || read -r ended <"$run/ended"
  [ "$state" = "$told" ] ||
    printf '%s\t%s\t%s\n' "$state${ended:+ $ended}" "$(when exit)" "$(when pid)"
  told=$state
  [ ! -f "$run/news" ] || show_news
  fresh=news
  # Once, until there is room again.
  if [ -f "$run/disk_low" ]; then # its lines, with tabs between them
    [ -n "$low" ] || { low=yes && printf 'low\t%s\n' "$(head -c 2048 "$run/disk_low" | tr '\n' '\t')"; }
  else
    low=
  fi
  case $state in running | queued) ;; *) break ;; esac
  kill -0 "$PPID" 2>/dev/null || break
  sleep 1
done
