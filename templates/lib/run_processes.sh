# shellcheck shell=sh disable=SC2154 # set in process
# run_processes: every process of a run, wherever it went, and how they end. POSIX sh: the queries use it too.
# They are known by the run's cgroup, by the mark in their environment, and by descent: a box may allow no cgroup, a
# program may overwrite its environment, and an orphan has lost the parent that would show its run.

# track RUN PID: notes the mark that its processes carry, and a cgroup (v2) of its own around the first, if the box
# lets us make one; else an empty line. A runner that tracks its run ends all of it.
track() {
  _point='' _path='' _id=$2
  while read -r _ _at _type _; do [ "$_type" != cgroup2 ] || _point=$_at; done </proc/mounts
  while IFS= read -r _line; do case $_line in 0::/*) _path=${_line#0::} ;; esac; done <"/proc/$2/cgroup"
  { read -r _id </proc/sys/kernel/random/uuid; } 2>/dev/null || :
  _group=$_point${_path%/}/boxstrap-$_id
  case $_point:$_path in :* | *: | *..*) _group='' ;; esac
  if [ -n "$_group" ] && ! { mkdir "$_group" && printf '%s\n' "$2" >"$_group/cgroup.procs"; } 2>/dev/null; then
    rmdir "$_group" 2>/dev/null
    _group=''
  fi
  printf '%s\n' "$_group" >"$1/cgroup"
  printf '%s\n' "$1" >"$1/mark"
  note_kills "$1" "$2"
}

# processes_of RUN: prints its processes, one a line, as `identity` writes them.
processes_of() {
  _all=' ' _grown=yes
  for _pid in $(first_of "$1"); do
    _pid=${_pid#/proc/} _pid=${_pid%%/*}
    case $_all in *" $_pid "*) ;; *) _all="$_all$_pid " ;; esac
  done
  while [ -n "$_grown" ]; do
    _grown=''
    for _dir in /proc/[0-9]*; do
      _pid=${_dir#/proc/}
      case $_all in *" $_pid "*) continue ;; esac
      { read -r _stat <"$_dir/stat"; } 2>/dev/null || continue
      # shellcheck disable=SC2086 # the fields of stat: $3 is the parent, $5 the session
      set -- "$1" ${_stat##*) }
      case $_all in *" $3 "* | *" $5 "*) _all="$_all$_pid " _grown=yes ;; esac
    done
  done
  for _pid in $_all; do
    if [ "$_pid" = "$$" ] || ! find_identity "$_pid"; then continue; fi
    case ${_stat##*) } in Z*) ;; *) printf '%s\n' "$_identity" ;; esac
  done
}

# first_of RUN: prints those that are known directly, by number or by a file in /proc.
first_of() {
  _group='' _child='' _mark=$1
  { read -r _group <"$1/cgroup"; } 2>/dev/null || :
  [ -z "$_group" ] || cat "$_group/cgroup.procs" 2>/dev/null
  { { read -r _ && read -r _child; } <"$1/pid"; } 2>/dev/null || :
  ! alive "$_child" || printf '%s\n' "${_child%% *}"
  { read -r _mark <"$1/mark"; } 2>/dev/null || :
  # The same folder may have another path.
  grep -lszxF -e "BOXSTRAP_RUN=$_mark" -e "BOXSTRAP_RUN=$(readlink -f "$1")" /proc/[0-9]*/environ
}

# signal_all SIGNAL: sends it to the processes on standard input.
signal_all() { while read -r _pid _; do kill -s "$1" "$_pid" 2>/dev/null || :; done; }

# living RUN KNOWN: prints its processes, and those known before that are still alive.
living() {
  processes_of "$1"
  [ -z "$2" ] || printf '%s\n' "$2" | while IFS= read -r _one; do
    case $_all in *" ${_one%% *} "*) ;; *) ! alive "$_one" || printf '%s\n' "$_one" ;; esac
  done
}

# grace_of RUN: prints the second until which its processes may end on their own, if they are asked now.
grace_of() {
  _grace=''
  { read -r _grace <"$1/grace"; } 2>/dev/null || :
  # An earlier version's run has none noted.
  printf '%s\n' "$(($(date +%s) + ${_grace:-10}))"
}

# reap RUN KNOWN KILL: waits for them to end, and kills what is left at the second KILL. Prints what is alive even then
# (another user's, or stuck in a driver), one a line: number, user, name.
reap() {
  _kill=$3
  while _left=$(living "$1" "$2") && [ -n "$_left" ]; do
    _now=$(date +%s)
    [ "$_now" -lt "$_kill" ] || printf '%s\n' "$_left" | signal_all KILL
    [ "$_now" -lt $((_kill + 2)) ] || break
    sleep 0.1
  done
  drop_group "$1"
  [ -z "$_left" ] || printf '%s\n' "$_left" | while read -r _pid _; do
    printf '%s\t%s\t%s\n' "$_pid" "$(stat -c %U "/proc/$_pid")" "$(cat "/proc/$_pid/comm")"
  done
}

drop_group() {
  _group=''
  { read -r _group <"$1/cgroup"; } 2>/dev/null || :
  [ -z "$_group" ] || rmdir "$_group" 2>/dev/null || :
}

# end_all RUN: what a runner does when it is to stop.
end_all() {
  _known=$(processes_of "$1")
  printf '%s\n' "$_known" | signal_all TERM
  reap "$1" "$_known" "$(grace_of "$1")" >/dev/null
}

# keep_left RUN: notes what a run that ended on its own left alive.
keep_left() {
  _left=$(processes_of "$1")
  if [ -n "$_left" ]; then printf '%s\n' "$_left" >"$1/left"; else drop_group "$1"; fi
}

# stop_run RUN: ends a run as a whole, whichever runner it has, or if it has none any more; prints what `reap` prints.
stop_run() {
  # With what was left before: another user's process may not be found in any other way now.
  _known=$(living "$1" "$(cat "$1/left" 2>/dev/null)") _runner='' _child='' _own=' ' _until=$(grace_of "$1")
  { { read -r _runner && read -r _child; } <"$1/pid"; } 2>/dev/null || :
  if alive "$_runner"; then
    kill -TERM "${_runner%% *}" 2>/dev/null
    # A runner that does not track its run (an earlier version's, a shorter script's) only ends its command's session.
    if [ -f "$1/mark" ]; then _own=all; else _own=" $(members "${_child%% *}" | tr '\n' ' ')"; fi
  else
    # There is no runner to write it: a reader that follows the log must not conclude that the run died.
    printf '%s\n' "$_known" >"$1/left"
    end_of_stop "$1"
  fi
  [ "$_own" = all ] || printf '%s\n' "$_known" | while read -r _pid _; do
    case $_own in *" $_pid "*) ;; *) printf '%s\n' "$_pid" ;; esac
  done | signal_all TERM
  # The runner kills, and writes the exit code, a moment after that.
  while alive "$_runner" && [ "$(date +%s)" -lt $((_until + 5)) ]; do sleep 0.1; done
  reap "$1" "$_known" "$_until"
  # What is still alive can be stopped again.
  if [ -n "$_left" ]; then printf '%s\n' "$_left" >"$1/left"; else rm -f "$1/left"; fi
  end_of_stop "$1"
}

# end_of_stop RUN: writes the end if there is no runner to do it, or one that does not.
end_of_stop() {
  { [ -f "$1/exit" ] && [ -f "$1/ended" ]; } || printf 'stop\n' >"$1/ended"
  [ -f "$1/exit" ] || printf '143\n' >"$1/exit"
}
