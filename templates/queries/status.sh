# shellcheck shell=sh disable=SC2154,SC3013 # the variables stand in front when it is sent; probe.sh comes before it
# status: after what the probe says, the end of the log of each run that failed, trees beside, and what the GPUs do.
# Each part begins with a line that only who asks can know: a log may hold anything.

show_log_ends() {
  failed_runs | while read -r _ run; do
    key=${run%/*}
    printf '\n%s log %s\n' "$mark" "${key##*/}/${run##*/}"
    tail -c "$bytes" "$run/log" 2>/dev/null
  done
}

# The newest first, each behind when it began; what was stopped did not fail.
failed_runs() {
  all_runs | while IFS='	' read -r run state; do
    case $state in 'finished 0' | running | waiting | queued) continue ;; esac
    ended='' started=0
    { read -r ended <"$run/ended"; } 2>/dev/null
    { read -r started <"$run/started"; } 2>/dev/null
    [ "$ended" = stop ] || printf '%s %s\n' "$started" "$run"
  done | sort -rn | head -n "$most"
}

# Trees beside the main ones: of each the run that was made in it last, then sizes, as far as a moment is enough.
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

# Where a run lives, and the last look at this box saw a GPU.
show_gpus() {
  count=0
  { while read -r word number; do [ "$word" != gpus ] || count=$number; done <"$box_home/gpu.said"; } 2>/dev/null
  case "$count $(all_runs)" in "0 "*) return ;; *'	running'*) ;; *) return ;; esac
  printf '\n%s gpus\n' "$mark"
  "$box_home/agent/bin/python" -B "$box_home/box/top_stream.py" --within "$patience" </dev/null 2>/dev/null
}

if [ -n "$redact" ]; then show_log_ends | redacted; else show_log_ends; fi
show_trees
show_gpus
