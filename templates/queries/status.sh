# shellcheck shell=sh disable=SC2154,SC3013 # the variables stand in front when it is sent; probe.sh comes before it
# status: after the probe's lines, the end of the log of each run that failed, the newest metric of others, where
# results are, trees beside, and what the GPUs do.
# Each part starts with a line that only the caller can know: a log may contain anything.
# library: packs repository queries/metrics queries/program

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

# Prints the last line with a metric of runs that are alive or ended well.
show_metrics() {
  find_newest fine
  set --
  while read -r _ run; do [ -z "$run" ] || set -- "$@" "$run"; done <<E
$found
E
  printf '\n%s metrics\n' "$mark"
  newest_metrics "$@"
}

# Where the results of each run are that is over; see `keep_results.py`.
show_results() {
  find_program results.keep_results || return 0
  printf '\n%s results\n' "$mark"
  timeout "$results_patience" "$box_home/agent/bin/python" -I -S -B "$program" ${module:+"$module"} status "$box_home" </dev/null 2>/dev/null
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
      [ "$where" = "$tree" ] || continue
      # Not the folder's own time: it changes when a run ends.
      if [ -z "$last" ] || [ "$run/command" -nt "$last/command" ]; then last=${run%/}; fi
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
  find_program runs.top_stream
  "$box_home/agent/bin/python" -I -B "$program" ${module:+"$module"} --within "$patience" </dev/null 2>/dev/null
}

show_logs() { show_log_ends && show_metrics; }

# Live runs whose disk will soon be full; see `disk_watch.py`.
show_disks() {
  for file in "$box_home"/runs/*/*/disk_low; do
    run=${file%/disk_low}
    if [ ! -f "$file" ] || ! in_state "$run" running; then continue; fi
    key=${run%/*}
    printf '\n%s disk %s\n' "$mark" "${key##*/}/${run##*/}"
    head -c 4096 "$file"
  done
}

# Who could not be told of a run; see `tell.py`.
show_untold() {
  for file in "$box_home"/runs/*/*/told; do
    if [ ! -f "$file" ] || ! grep -q ' failed ' "$file"; then continue; fi
    run=${file%/told} key=${file%/*/told}
    printf '\n%s untold %s\n' "$mark" "${key##*/}/${run##*/}"
    grep ' failed ' "$file" | head -c 2000
  done
}

if [ -n "$redact" ]; then show_logs | redacted; else show_logs; fi
show_results
show_trees
show_disks
show_untold
show_gpus
