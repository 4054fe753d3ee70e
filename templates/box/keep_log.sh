#!/usr/bin/env bash
# keep_log: while a run's command is alive, notes when its log grew, and drops the oldest part of a log above its limit.
# Also starts the box's monitor and the upload of results.
# usage: bash keep_log.sh COMMAND RUN_DIR
# COMMAND is its process, as `identity` writes it. The command writes its log itself, through no process of boxstrap's.
{
  # library: process

  command=$1 run=$2 log=$2/log times=$2/times
  # Dropping a part does not change offsets, so a reader that follows the log keeps its place.
  size=0 kept=0 lines=0
  { read -r most <"$run/log_max"; } 2>/dev/null || most=$((1 << 60))

  # Adds a line to `times`: the time, and how long the log is. The first line says from which byte the log is kept.
  note() {
    local now
    printf -v now '%(%s)T' -1
    printf '%s %s\n' "$now" "$size" >>"$times"
    lines=$((lines + 1))
    [ "$lines" -lt 100000 ] || thin_out
  }

  # For a run of weeks: drops every second line.
  thin_out() {
    awk 'NR % 2' "$times" >"$times.new" && mv -f "$times.new" "$times"
    lines=$((lines / 2))
  }

  look() {
    local now grown
    now=$(exec stat -c %s "$log" 2>/dev/null) || return
    changed=''
    [ "$now" -ne "$size" ] || return
    # The log was emptied: start again.
    [ "$now" -gt "$size" ] || { size=0 kept=0 lines=0 && : >"$times" && note; }
    grown=$((now - size)) size=$now changed=yes
    note
    # Below the limit: making room takes time, and the log grows in the meantime.
    [ $((size - kept)) -le $((most * 3 / 4)) ] || drop_log_before $((size - most / 2))
    if [ "$grown" -lt $((most / 64)) ]; then pause=1; else pause=0.1; fi
  }

  # drop_log_before END: drops the log before END, up to the end of that line.
  drop_log_before() {
    local end=$1
    # A file system without holes drops nothing; `disk_low` says when that matters.
    { : >"$times.new" && fallocate -p -o 0 -l 4096 "$times.new"; } 2>/dev/null || { most=$((1 << 60)) && return; }
    end=$((end + $(copy "$end" $((end + 65536)) | head -n 1 | wc -c)))
    # Keeps later times, after a first line that says where the kept part starts: there a reader finds a hole's end.
    awk -v end="$end" '$2 <= end { at = $1; next } !begun++ { print at, end } 1
      END { if (!begun) print at, end }' "$times" >"$times.new" && mv -f "$times.new" "$times" || return
    lines=$(wc -l <"$times")
    fallocate -p -o "$kept" -l $((end - kept)) "$log" 2>/dev/null && kept=$end
  }

  # copy FROM END: prints this part of the log.
  copy() { tail -c "+$(($1 + 1))" "$log" 2>/dev/null | head -c $(($2 - $1)); }

  # One per box: a second one exits. It starts late: a run that ends right away needs none, and one that has printed
  # nothing yet is mostly loading its libraries, and needs its cores for that.
  start_monitor() {
    local box_home=${run%/*/*/*}
    monitor=begun
    setsid "$box_home/agent/bin/python" -I -B "${0%/*}/onbox/__main__.py" runs.monitor "$box_home" </dev/null >/dev/null 2>&1 {quiet}>&- &
  }

  # The upload of results to a bucket outlives this process.
  start_upload() {
    local python=${run%/*/*/*}/agent/bin/python
    [ -f "$run/results_to" ] && [ -x "$python" ] || return
    setsid "$python" -I -B "${0%/*}/onbox/__main__.py" bucket.upload_results "$run" </dev/null >/dev/null 2>&1 &
  }

  start_upload
  # A pipe that nobody writes to: waiting for it takes no process of its own.
  exec {quiet}<> <(:)
  # Not in the middle of dropping a part.
  trap 'over=yes' TERM
  pause=0.3 over='' monitor='' changed=''
  note
  while [ -z "$over" ] && alive "$command"; do
    read -rt "$pause" -u "$quiet" _
    # After a change once more: what is written between a look and its line in `times` is older than that line.
    if [ "$log" -nt "$times" ] || [ -n "$changed" ]; then look; fi
    [ -n "$monitor" ] || [ "$SECONDS" -lt "$((size > 0 ? 5 : 15))" ] || start_monitor
  done
  look
  # Whoever wants to be told is told of a short run, too.
  [ -n "$monitor" ] || { [ ! -f "$run/notify" ] && [ ! -f "$run/notify_to" ]; } || start_monitor
  exit
}
