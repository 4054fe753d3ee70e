# shellcheck shell=sh disable=SC3013 # every sh there is knows -nt
# queue: runs that wait for their turn on this box; the first made starts first. POSIX sh: the queries use it too.
# A run's `queue` says what it waits for: `after RUN` (that ended with 0), `after-any RUN` (it ended), `gpus` (no other
# run has its GPUs). A process waits for each, noted in `waiter`. Only the holder of the lock decides: a run leaves the
# queue by `pid`, when it starts, or by `exit`.

# may_begin RUN: 0 its turn has come, 1 not yet, 2 never, because the run before it failed.
may_begin() {
  read -r _for _before <"$1/queue"
  case $_for in gpus) has_gpus "$1" && return || return 1 ;; esac
  case $_before in */*) _before=${1%/*/*}/$_before ;; *) _before=${1%/*}/$_before ;; esac
  _before=$(last_of "$_before")
  _state=gone
  [ ! -d "$_before" ] || _state=$(run_state "$_before")
  case $_for:$_state in
    # A run that died may still be resumed.
    *:running | *:queued | *:waiting | after:died) return 1 ;;
    # A run that was stopped or interrupted may have ended with 0, and did not do its work.
    after:'finished 0') ! grep -qsE '^(stop|interrupted .*)$' "$_before/ended" || return 2 ;;
    after-any:*) return 0 ;;
    *) return 2 ;;
  esac
}

# last_of RUN: prints the last run that resumed it, directly or not; itself if none did.
last_of() {
  _last=$1 _next=$1
  while [ -n "$_next" ]; do
    _next=
    for _note in "${_last%/*/*}"/*/*/resumes; do
      { read -r _from <"$_note"; } 2>/dev/null || continue
      [ "${_last%/*/*}/$_from" = "$_last" ] || continue
      if [ -z "$_next" ] || [ "$_note" -nt "$_next/resumes" ]; then _next=${_note%/*}; fi
    done
    _last=${_next:-$_last}
  done
  printf '%s\n' "$_last"
}

# has_gpus RUN: whether no live run has one of its GPUs, and none before it in the queue wants one.
has_gpus() {
  for _other in "${1%/*/*}"/*/*/; do
    _other=${_other%/}
    if [ "$_other" = "$1" ] || [ -f "$_other/exit" ] || ! share_gpus "$1" "$_other"; then continue; fi
    case $(run_state "$_other") in
      running) return 1 ;;
      queued) ! is_before "$_other" "$1" || return 1 ;;
    esac
  done
}

# share_gpus RUN RUN: a run that names no GPUs has all of them.
share_gpus() {
  _mine=all _theirs=all
  { read -r _mine <"$1/gpus"; } 2>/dev/null || :
  { read -r _theirs <"$2/gpus"; } 2>/dev/null || :
  case " $_mine $_theirs " in *' all '*) return ;; esac
  while [ -n "$_mine" ]; do
    case ,$_theirs, in *",${_mine%%,*},"*) return ;; esac
    case $_mine in *,*) _mine=${_mine#*,} ;; *) _mine='' ;; esac
  done
  return 1
}

# missing_gpu BOX_HOME NUMBERS: prints the first that this box does not have; 1 if it has all, or none were looked for. CUDA
# hides all GPUs from such a number on, and a program then silently computes without them.
missing_gpu() {
  _count=
  { while read -r _word _number; do [ "$_word" != gpus ] || _count=$_number; done <"$1/gpu.said"; } 2>/dev/null
  [ -n "$_count" ] || return 1
  for _number in $(printf '%s\n' "$2" | tr , ' '); do
    [ "$_number" -lt "$_count" ] || { printf '%s\n' "$_number" && return; }
  done
  return 1
}

# is_before RUN RUN: for runs that wait for GPUs; a run that waits for another run wants none yet.
is_before() {
  read -r _for _ <"$1/queue"
  [ "$_for" = gpus ] && [ "$2/queue" -nt "$1/queue" ]
}

# take_out RUN WHY: takes it out of the queue; 1 if it has started, or is over.
take_out() {
  {
    flock 7
    [ "$(run_state "$1")" = queued ] && leave_queue "$@"
  } 7>>"${1%/*/*/*}/queue.lock"
}

# empty_queue BOX_HOME WHY: takes out all: otherwise one would start as soon as a live run is ended.
empty_queue() {
  for _note in "$1"/runs/*/*/queue; do
    [ ! -f "$_note" ] || take_out "${_note%/queue}" "$2" || :
  done
}

# leave_queue RUN WHY: with the lock held. Writes into room that was reserved: the disk may be full.
leave_queue() {
  printf '%s\n' "$2" >"$1/ended"
  printf '143\n' 1<>"$1/exit.new" && mv -f "$1/exit.new" "$1/exit"
}

# revive_queue RUNS PROGRAMS ENV_FILE: gives each queued run a waiter again. With the lock held.
revive_queue() {
  for _note in "$1"/*/*/queue; do
    _queued=${_note%/queue}
    if [ ! -f "$_note" ] || [ -f "$_queued/exit" ] || [ -f "$_queued/pid" ] || attended "$_queued"; then continue; fi
    # If one can't be started, the others still are.
    start_waiter "$_queued" "$2" "$3" || :
  done
}

# start_waiter RUN PROGRAMS ENV_FILE: in a session of its own, without our locks and pipes. A waiter that can't be noted
# would not stay, so none is started.
start_waiter() {
  echo >"$1/waiter" || return
  detached bash "$2/waiter.sh" "$1" "$3" </dev/null >/dev/null 2>&1 3>&- 6>&- 7>&- 8>&- 9>&- &
  _tries=0
  until attended "$1"; do
    _tries=$((_tries + 1))
    [ "$_tries" -lt 250 ] || return 1
    sleep 0.02
  done
}
