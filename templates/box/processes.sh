# shellcheck shell=sh disable=SC2154 # set in the library
# processes: what a runner notes of its run's processes.
# usage: sh processes.sh track | keep_kills RUN ...
# library: process memory_kills

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

"$@"
