# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# detach: from standard input, lines `NAME BOX ADDRESS` of who is to be told of these runs; the box's monitor does that,
# of what it finds from now on. Prints `told RUN` for each run that goes on.
# library: queries/program

find_home
if ! find_program runs.monitor || [ "$python" = python3 ]; then
  printf 'old\t\n'
  exit 0
fi
umask 077
said=$(cat)
for path in $runs; do
  run=$box_home/runs/$path
  if ! in_state "$run" running && ! in_state "$run" queued; then continue; fi
  known=$(cut -d' ' -f1 "$run/news" 2>/dev/null | tr -cd 'a-z\n' | tr '\n' ,)
  printf '%s\n' "$said" | sed "s/^/${known:--} /" >"$run/notify_to.new" && mv -f "$run/notify_to.new" "$run/notify_to" &&
    printf 'told\t%s\n' "$path"
done
# The box has one already, as a rule: a second one exits.
setsid "$python" -I -B "$program" "$module" "$box_home" </dev/null >/dev/null 2>&1 &
