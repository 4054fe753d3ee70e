# shellcheck shell=sh disable=SC2154 # set in process
# run_processes: every process of a run, wherever it went, and how they end. POSIX sh: the queries use it too.
# They are known by the run's cgroup, by the mark in their environment, and by descent: a box may allow no cgroup, a
# program may overwrite its environment, and an orphan has lost the parent that would show its run.

# processes_of RUN: prints its processes, one a line, as `identity` writes them.
processes_of() { with_children "$(first_of "$1")" '*'; }

# with_children PIDS SESSION: prints these processes and what they started, as `identity` writes them: all of it, or
# what is in this session.
with_children() {
  _all=' ' _grown=yes
  for _pid in $1; do
    _pid=${_pid#/proc/} _pid=${_pid%%/*}
    case $_all in *" $_pid "*) ;; *) _all="$_all$_pid " ;; esac
  done
  while [ -n "$_grown" ]; do
    _grown=''
    for _dir in /proc/[0-9]*; do
      _pid=${_dir#/proc/}
      case $_all in *" $_pid "*) continue ;; esac
      read_stat "$_dir" || continue
      # shellcheck disable=SC2086 # the fields of stat: $4 is the parent, $6 the session
      set -- "$1" "$2" ${_stat##*) }
      # shellcheck disable=SC2254 # a pattern
      case "$_all:$6" in *" $4 "*:$2 | *" $6 "*:$2) _all="$_all$_pid " _grown=yes ;; esac
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

# living RUN KNOWN: prints its processes, and those known before that are still alive, with what they started. Without a
# RUN only what is in the session of the ones known: a step of a setup may just have started a run.
living() {
  _run=$1 _first='' _session='*'
  [ -z "$_run" ] || _first=$(first_of "$_run")
  # shellcheck disable=SC2086 # number, start and boot of each
  set -- $2
  while [ $# -gt 2 ]; do
    if alive "$1 $2 $3"; then
      _first="$_first $1"
      [ -n "$_run" ] || { _stat=${_stat##*) } && _stat=${_stat#* * * } && _session=${_stat%% *}; }
    fi
    shift 3
  done
  with_children "$_first" "$_session"
}

# grace_of RUN: prints the second until which its processes may end on their own, if they are asked now. If the box is
# about to be taken away, that is five seconds earlier, for what is left to do then.
grace_of() {
  _grace='' _goes=''
  { read -r _grace <"$1/grace"; } 2>/dev/null || :
  { read -r _ _ _goes <"$1/interrupted"; } 2>/dev/null || :
  _grace=$(($(date +%s) + ${_grace:-10}))
  if [ -n "$_goes" ] && [ "$_grace" -gt $((_goes - 5)) ]; then _grace=$((_goes - 5)); fi
  printf '%s\n' "$_grace"
}

# reap RUN KNOWN KILL: asks them to end, each in its turn, and kills what is left at the second KILL. Prints what is
# alive even then (another user's, or stuck in a driver), one a line: number, user, name. Without a RUN: those KNOWN.
reap() {
  _kill=$3 _left=$2 _asked=' ' _parents=' '
  while _left=$(living "$1" "$_left") && [ -n "$_left" ]; do
    _now=$(date +%s)
    if [ "$_now" -lt "$_kill" ]; then ask_next "$1" "$_left"; else printf '%s\n' "$_left" | signal_all KILL; fi
    [ "$_now" -lt $((_kill + 2)) ] || break
    sleep 0.1
  done
  [ -z "$1" ] || drop_group "$1"
  [ -z "$_left" ] || printf '%s\n' "$_left" | while read -r _pid _; do
    printf '%s\t%s\t%s\n' "$_pid" "$(stat -c %U "/proc/$_pid")" "$(cat "/proc/$_pid/comm")"
  done
}

# ask_next RUN LEFT: asks those whose turn it is to end (SIGTERM), each once: first the topmost. A launcher ends its own
# processes, and a training may need its helpers until it has saved. A shell passes nothing on: what it waits for is
# asked with it. What reads the output of another comes after that one, whose last words would else end in a broken
# pipe. What was left detached earlier comes last.
ask_next() {
  _child='' _live=' ' _roles=' ' _held='' _turn='' _busy='' _main=''
  [ -z "$1" ] || { { read -r _ && read -r _child; } <"$1/pid"; } 2>/dev/null || :
  _child=${_child%% *}
  # shellcheck disable=SC2086 # number, start and boot of each
  set -- $2
  while [ $# -gt 2 ]; do _live="$_live$1 " && shift 3; done
  note_parents
  for _pid in $_live; do
    find_top "$_pid" && [ "$_top" != "$_child" ] || _main=$_child
  done
  for _pid in $_live; do
    find_top "$_pid"
    [ "$_top" = "${_main:-$_top}" ] || continue
    case $_asked in *" $_pid "*) is_role shell "$_pid" || _busy=yes && continue ;; esac
    is_next "$_pid" || continue
    if reads_from_run "$_pid"; then _held="$_held $_pid"; else _turn="$_turn $_pid"; fi
  done
  # Those that wait for each other are asked at once.
  [ -n "$_turn$_busy" ] || _turn=$_held
  # A shell before what it waits for: it must not start anything else then.
  for _pid in $_turn; do ! is_role shell "$_pid" || kill -TERM "$_pid" 2>/dev/null || :; done
  for _pid in $_turn; do is_role shell "$_pid" || kill -TERM "$_pid" 2>/dev/null || :; done
  _asked="$_asked$_turn "
}

# note_parents: keeps the parent of each process of _live as it was when it was first seen.
note_parents() {
  for _pid in $_live; do
    case $_parents in *" $_pid:"*) continue ;; esac
    read_stat "/proc/$_pid" || continue
    _stat=${_stat##*) } _stat=${_stat#* }
    _parents="$_parents$_pid:${_stat%% *} "
  done
}

# find_parent PID: sets _parent; 1 if it is no process of the run.
find_parent() {
  _parent=${_parents##*" $1:"} _parent=${_parent%% *}
  case $_parents in *" $_parent:"*) ;; *) return 1 ;; esac
}

# find_top PID: sets _top to the process of the run from which it descends.
find_top() {
  _top=$1
  while [ "$_top" != "$_child" ] && find_parent "$_top"; do _top=$_parent; done
}

# is_next PID: whether no process above it has to end first, or below it if it is only a wrapper.
is_next() {
  _up=$1
  while [ "$_up" != "$_child" ] && find_parent "$_up"; do
    _up=$_parent
    case $_live in *" $_up "*) ! is_role program "$_up" || return 1 ;; esac
  done
  is_role wrapper "$1" || return 0
  for _other in $_live; do
    ! find_parent "$_other" || [ "$_parent" != "$1" ] || return 1
  done
}

# is_role ROLE PID
is_role() { find_role "$2" && [ "$_role" = "$1" ]; }

# find_role PID: sets _role: a `shell` passes no signal on; a `wrapper` ends with what it runs, and kills all of that if
# it is asked itself; else `program`.
find_role() {
  case $_roles in *" $1:"*) _role=${_roles##*" $1:"} _role=${_role%% *} && return ;; esac
  _role=program _comm=''
  { read -r _comm <"/proc/$1/comm"; } 2>/dev/null || :
  _exe=$(readlink "/proc/$1/exe") || :
  case $_comm:$_exe in
    timeout:* | time:*) _role=wrapper ;;
    *sh | */busybox) _role=shell ;;
  esac
  _roles="$_roles$1:$_role "
}

# reads_from_run PID: whether its input is written by another process of the run: it ends by itself after that one.
reads_from_run() {
  [ -p "/proc/$1/fd/0" ] || return 1
  _files=''
  for _other in $_live; do
    [ "$_other" = "$1" ] || _files="$_files /proc/$_other/fd/1 /proc/$_other/fd/2"
  done
  # shellcheck disable=SC2086
  readlink $_files . 2>/dev/null | grep -qxF -e "$(readlink "/proc/$1/fd/0")"
}

drop_group() {
  _group=''
  { read -r _group <"$1/cgroup"; } 2>/dev/null || :
  [ -z "$_group" ] || rmdir "$_group" 2>/dev/null || :
}

# stop_run RUN: ends a run as a whole, whichever runner it has, or if it has none any more; prints what `reap` prints.
stop_run() {
  # With what was left before: another user's process may not be found in any other way now.
  _known=$(living "$1" "$(cat "$1/left" 2>/dev/null)") _runner='' _until=$(grace_of "$1")
  { read -r _runner <"$1/pid"; } 2>/dev/null || :
  if ! alive "$_runner"; then
    # There is no runner to write it: a reader that follows the log must not conclude that the run died.
    printf '%s\n' "$_known" >"$1/left"
    end_of_stop "$1"
  elif [ -f "$1/mark" ]; then
    kill -TERM "${_runner%% *}" 2>/dev/null || :
    await_end "$_runner" $((_until + 5))
  fi
  reap "$1" "$_known" "$_until"
  # The runner only has to write the exit code.
  await_end "$_runner" $(($(date +%s) + 5))
  # What is still alive can be stopped again.
  if [ -n "$_left" ]; then printf '%s\n' "$_left" >"$1/left"; else rm -f "$1/left"; fi
  end_of_stop "$1"
}

# await_end IDENTITY SECOND: waits for its end, but not beyond that second.
await_end() { while alive "$1" && [ "$(date +%s)" -lt "$2" ]; do sleep 0.1; done; }

# stopped_by RUN: prints what decided its exit code when it was asked to end.
stopped_by() {
  _by=''
  { read -r _by <"$1/interrupted"; } 2>/dev/null || :
  printf '%s\n' "${_by:+interrupted }${_by:-stop}"
}

# end_of_stop RUN: writes the end if there is no runner to do it, or one that does not.
end_of_stop() {
  { [ -f "$1/exit" ] && [ -f "$1/ended" ]; } || stopped_by "$1" >"$1/ended"
  [ -f "$1/exit" ] || printf '143\n' >"$1/exit"
}
