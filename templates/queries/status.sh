# shellcheck shell=sh disable=SC2154,SC3013 # the variables stand in front when it is sent; probe.sh comes before it
# status: after the probe's lines, the end of the log of each run that failed, the newest metric of others, trees
# beside, and what the GPUs do.
# Each part starts with a line that only the caller can know: a log may contain anything.

show_log_ends() {
  find_newest failed
  while read -r _ run; do
    [ -n "$run" ] || continue
    key=${run%/*}
    printf '\n%s log %s\n' "$mark" "${key##*/}/${run##*/}"
    tail -c "$bytes" "$run/log" 2>/dev/null
  done <<E
$found
E
}

# find_newest failed|fine: sets found to the newest few of these runs, one a line, each after its start time. A run
# that was stopped did not fail.
find_newest() {
  found='' count=0
  for run in "$box_home"/runs/*/*/; do
    run=${run%/} ended='' started=0 outcome=failed
    [ -f "$run/command" ] || continue
    find_state "$run"
    case $_state in
      'finished 0' | running) outcome=fine ;;
      waiting | queued) continue ;;
      *) { read -r ended <"$run/ended"; } 2>/dev/null ;;
    esac
    if [ "$outcome" != "$1" ] || [ "$ended" = stop ]; then continue; fi
    { read -r started <"$run/started"; } 2>/dev/null
    found="$found$started $run
"
    count=$((count + 1))
  done
  [ "$count" -le 1 ] || found=$(printf %s "$found" | sort -rn | head -n "$most")
}

# Prints the last line with a metric of runs that are alive or ended well. A run may have patterns of its own, each
# after its names. However many runs there are, it takes the same few processes.
show_metrics() {
  find_newest fine
  set --
  while read -r _ run; do [ -z "$run" ] || set -- "$@" "$run/log"; done <<E
$found
E
  printf '\n%s metrics\n' "$mark"
  [ ! -f "$1" ] || tail -v -c 16384 -- "$@" 2>/dev/null | tr '\r' '\n' | LC_ALL=C usual=$usual_metrics awk '
    function answer() { if (last != "") print run "\t" substr(last, 1, 1000); last = "" }
    /^==> .*\/log <==$/ {
      answer()
      dir = substr($0, 5, length($0) - 12)
      count = split(dir, part, "/")
      run = part[count - 1] "/" part[count]
      own = ""
      while ((getline line <(dir "/metrics")) > 0) own = own "|" substr(line, index(line, "\t") + 1)
      wanted = tolower(own == "" ? ENVIRON["usual"] : substr(own, 2))
      next
    }
    tolower($0) ~ wanted { last = $0 }
    END { answer() }'
}

# Trees beside the main ones: for each the last run made in it, then sizes, as far as a moment is enough.
show_trees() {
  set --
  printf '\n%s trees\n' "$mark"
  for note in "$box_home"/steps/*/beside/*/repo.dir; do
    { read -r tree <"$note"; } 2>/dev/null || continue
    last=''
    for run in "$box_home"/runs/*/*/; do
      where=''
      { read -r where <"$run/dir"; } 2>/dev/null
      if [ "$where" = "$tree" ] && { [ -z "$last" ] || [ "$run" -nt "$last" ]; }; then last=${run%/}; fi
    done
    note=${note%/beside/*}
    fact tree "${note##*/}	${tree##*/}	${last##*/}"
    set -- "$@" "$tree"
  done
  # shellcheck disable=SC2016 # that shell's own
  [ "$#" -eq 0 ] || timeout 0.3 sh -c 'for tree; do du -sk -- "$tree"; done' du "$@" 2>/dev/null |
    while IFS='	' read -r size tree; do fact size "${tree##*/}	$size"; done
}

is_any_alive() {
  for run in "$box_home"/runs/*/*/; do
    if [ -f "$run/command" ] && in_state "${run%/}" running; then return; fi
  done
  return 1
}

# If a run is alive, and the last check of this box saw a GPU.
show_gpus() {
  count=0
  { while read -r word number; do [ "$word" != gpus ] || count=$number; done <"$box_home/gpu.said"; } 2>/dev/null
  [ "$count" != 0 ] && is_any_alive || return
  printf '\n%s gpus\n' "$mark"
  "$box_home/agent/bin/python" -B "$box_home/box/top_stream.py" --within "$patience" </dev/null 2>/dev/null
}

show_logs() { show_log_ends && show_metrics; }

if [ -n "$redact" ]; then show_logs | redacted; else show_logs; fi
show_trees
show_gpus
