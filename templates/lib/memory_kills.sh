# shellcheck shell=sh
# memory_kills: processes that the kernel killed for memory while a run was alive. POSIX sh: the runner calls it through
# processes.sh. The number is from the nearest cgroup (v1 or v2) that counts, others in the same container included.
# The name, and how much memory it held, are from the kernel's log, if that can be read.

# note_kills RUN PID: notes how many there were when the run started.
note_kills() {
  find_counter /proc/mounts "/proc/$2/cgroup"
  ! count_kills "$_counter" || printf '%s %s %s\n' "$_kills" "$(limit_of "${_counter%/*}")" "$_counter" >"$1/kills"
}

# keep_kills RUN RC: notes in `killed` how many there were since, the limit, what the last one held, and its name. Zero
# is noted only if something killed the run.
keep_kills() {
  _before='' _counter='' _count='' _limit=-
  { read -r _before _limit _counter <"$1/kills"; } 2>/dev/null || :
  ! count_kills "$_counter" || _count=$((_kills - _before))
  find_last_kill "$1"
  [ -n "$_count" ] || [ -z "$_is_child" ] || _count=1
  case $_count in '' | -*) return 0 ;; 0) [ "$2" = 137 ] || return 0 ;; esac
  [ "$_count" != 0 ] || _held=- _name=-
  printf '%s %s %s %s\n' "$_count" "$_limit" "$_held" "$_name" >"$1/killed"
}

# find_counter MOUNTS CGROUPS: sets _counter to the nearest file that counts, from a process's cgroup up to the root.
find_counter() {
  _counter='' _v1='' _v2=''
  while read -r _ _at _type _options _; do
    case $_type:,$_options, in
      cgroup2:*) _v2=$_at ;;
      cgroup:*,memory,*) _v1=$_at ;;
    esac
  done <"$1"
  while IFS=: read -r _number _names _path; do
    case $_number:,$_names, in
      0:,,) [ -n "$_counter" ] || [ -z "$_v2" ] || nearest "$_v2" "$_path" memory.events ;;
      *:*,memory,*) [ -z "$_v1" ] || nearest "$_v1" "$_path" memory.oom_control ;;
    esac
  done <"$2"
}

# nearest POINT PATH FILE: sets _counter. A container may not see its own path, only what is above it.
nearest() {
  _path=${2%/}
  until [ -r "$1$_path/$3" ]; do
    [ -n "$_path" ] || return 0
    _path=${_path%/*}
  done
  _counter=$1$_path/$3
}

# count_kills FILE: sets _kills; 1 if the file doesn't say.
count_kills() {
  _kills=''
  [ -r "$1" ] || return 1
  while read -r _word _number; do [ "$_word" != oom_kill ] || _kills=$_number; done <"$1"
  [ -n "$_kills" ]
}

# limit_of CGROUP: prints bytes, or `-`; v1 has a number of 19 digits if there is no limit.
limit_of() {
  _limit=''
  { read -r _limit <"$1/memory.max" || read -r _limit <"$1/memory.limit_in_bytes"; } 2>/dev/null || :
  case $_limit in '' | *[!0-9]* | ???????????????????*) _limit=- ;; esac
  printf '%s\n' "$_limit"
}

# find_last_kill RUN: sets _name and _held (bytes) of the last one since the run started, `-` if unknown;
# _is_child if it was the run's own first process.
find_last_kill() {
  _name=- _held=- _is_child='' _child=''
  { { read -r _ && read -r _child; } <"$1/pid"; } 2>/dev/null || :
  _line=$(dmesg 2>/dev/null | grep -a 'Killed process' | tail -n 1)
  _at=${_line%%.*} _at=${_at#*[} _at=${_at##* } _began=${_child#* } _began=${_began%% *}
  _held=${_line##*anon-rss:} _held=${_held%%kB*}
  # The log counts seconds since boot, process start times are in hundredths of them.
  case "$_at $_began $_held" in *[!0-9\ ]* | ' '* | *' ' | *'  '*) _held=- && return ;; esac
  [ "$_at" -ge $((_began / 100 - 1)) ] || { _held=- && return; }
  _line=${_line##*Killed process } _held=$((_held * 1024))
  [ "${_line%% *}" != "${_child%% *}" ] || _is_child=yes
  _name=${_line#*(} _name=${_name%%)*}
}
