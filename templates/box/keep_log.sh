#!/usr/bin/env bash
# keep_log: while a run's command lives, notes when its log grew, and lets the oldest part go above its limit. Sees to it
# that the box has its monitor.
# usage: bash keep_log.sh COMMAND RUN_DIR
# COMMAND is its process, as `identity` writes it. That writes its log itself: nothing of ours stands between.
{
  # library: process

  command=$1 run=$2 log=$2/log times=$2/times
  # Offsets stay what they are whatever was let go, so whoever follows the log loses no place.
  size=0 kept=0 lines=0
  # An earlier version's run has no limit.
  { read -r most <"$run/log_max"; } 2>/dev/null || most=$((1 << 60))

  # A line of `times`: when it was seen that the log is this long. Its first line is where the log is kept from.
  note() {
    local now
    printf -v now '%(%s)T' -1
    printf '%s %s\n' "$now" "$size" >>"$times"
    lines=$((lines + 1))
    [ "$lines" -lt 100000 ] || thin_out
  }

  # For a run of weeks: half as many times, half as exact.
  thin_out() {
    awk 'NR % 2' "$times" >"$times.new" && mv -f "$times.new" "$times"
    lines=$((lines / 2))
  }

  look() {
    local now grown
    now=$(exec stat -c %s "$log" 2>/dev/null) && [ "$now" -ne "$size" ] || return
    # One that was emptied begins anew.
    [ "$now" -gt "$size" ] || { size=0 kept=0 lines=0 && : >"$times"; }
    grown=$((now - size)) size=$now
    note
    # Before the limit: making room takes time, and the log grows meanwhile.
    [ $((size - kept)) -le $((most * 3 / 4)) ] || let_go $((size - most / 2))
    if [ "$grown" -lt $((most / 64)) ]; then pause=1; else pause=0.1; fi
  }

  # let_go END: what lies before, to the end of a line.
  let_go() {
    local end=$1
    end=$((end + $(copy "$end" $((end + 65536)) | head -n 1 | wc -c)))
    # Later times stay, behind a first line for what is first then. Who finds a hole finds its end there.
    awk -v end="$end" '$2 <= end { at = $1; next } !begun++ { print at, end } 1
      END { if (!begun) print at, end }' "$times" >"$times.new" && mv -f "$times.new" "$times" || return
    lines=$(wc -l <"$times")
    fallocate -p -o "$kept" -l $((end - kept)) "$log" 2>/dev/null || without_holes "$end" || return
    kept=$end
  }

  # copy FROM END: this part of the log.
  copy() { tail -c "+$(($1 + 1))" "$log" 2>/dev/null | head -c $(($2 - $1)); }

  # without_holes END: a file system that makes none in a file. What is kept goes aside, and comes back to its place.
  # What is written between the last copy and the cut, a few milliseconds, is lost.
  without_holes() {
    local block=$(($1 / 65536)) from=$(($1 / 65536 * 65536)) aside=$run/log.aside now=$size
    : >"$aside"
    for _ in {1..20}; do
      copy "$from" "$now" >>"$aside" || { rm -f "$aside" && return 1; }
      from=$now now=$(stat -c %s "$log")
      [ "$now" -gt "$from" ] || break
    done
    : >"$log"
    truncate -s "$from" "$log"
    dd if="$aside" of="$log" bs=65536 seek="$block" conv=notrunc 2>/dev/null
    size=$from
    rm -f "$aside"
  }

  # One a box: where it is there already, this one leaves. A run that ends at once needs none, and one that has said
  # nothing yet mostly loads its libraries, and wants its cores for that.
  start_monitor() {
    local box_home=${run%/*/*/*}
    monitor=begun
    setsid "$box_home/agent/bin/python" -B "${0%/*}/monitor.py" "$box_home" </dev/null >/dev/null 2>&1 {quiet}>&- &
  }

  # What puts the results into a bucket outlives this.
  start_upload() {
    local python=${run%/*/*/*}/agent/bin/python
    [ -f "$run/results_to" ] && [ -x "$python" ] || return
    setsid "$python" -I -B "${0%/*}/upload_results.py" "$run" </dev/null >/dev/null 2>&1 &
  }

  start_upload
  # A pipe that nobody writes to: waiting for it takes no process of its own.
  exec {quiet}<> <(:)
  # Not in the midst of letting go.
  trap 'over=yes' TERM
  pause=0.3 over='' monitor=
  note
  while [ -z "$over" ] && alive "$command"; do
    read -rt "$pause" -u "$quiet" _
    [ ! "$log" -nt "$times" ] || look
    [ -n "$monitor" ] || [ "$SECONDS" -lt "$((size > 0 ? 5 : 15))" ] || start_monitor
  done
  look
  exit
}
