#!/usr/bin/env bash
# runner: one training command, with its log, its exit code, and who is running it.
# usage: bash runner.sh RUN_DIR ENV_FILE
# shellcheck disable=SC2317 # a trap calls it
{
  run=$1 env_file=$2 keeper='' shown='' child='' watch='' python=${1%/*/*/*}/agent/bin/python
  [ -x "$python" ] || python=python3
  ours=("$python" -I -S -B "${0%/*}/onbox/__main__.py")

  # library: process

  # track RUN PID: notes the mark that its processes carry, and a cgroup (v2) of its own around the first, if the box
  # lets us make one; else an empty line. A runner that tracks its run ends all of it.
  track() {
    local point='' path='' id=$2 group at type line
    while read -r _ at type _; do [ "$type" != cgroup2 ] || point=$at; done </proc/mounts
    while IFS= read -r line; do case $line in 0::/*) path=${line#0::} ;; esac; done <"/proc/$2/cgroup"
    read -r id </proc/sys/kernel/random/uuid
    group=$point${path%/}/boxstrap-$id
    case $point:$path in :* | *: | *..*) group='' ;; esac
    [ -z "$group" ] || { mkdir "$group" && printf '%s\n' "$2" >"$group/cgroup.procs"; } || { rmdir "$group"; group=''; }
    printf '%s\n' "$group" >"$1/cgroup"
    printf '%s\n' "$1" >"$1/mark"
  } 2>/dev/null

  # begin RUN_DIR ENV_FILE VENV COMMAND, in a process of its own: the profile may set any variable, ours too.
  begin() {
    # Nothing runs without being recorded. The runner's own line in this file had room, so this one has too.
    identity "$BASHPID" >>"$1/pid" || exit 125
    track "$1" "$BASHPID"
    unset ours # an array: the profile's variable of that name would not be exported
    # boxstrap works in the C locale; the training gets the box's own, or UTF-8.
    unset LC_ALL LC_MESSAGES LC_NUMERIC
    export LANG="${LANG:-C.UTF-8}" PYTHONUNBUFFERED=1
    # shellcheck disable=SC1090 # written by the step `shell`
    [ ! -r "$2" ] || . "$2"
    [ ! -f "$1/variables" ] || while IFS= read -r variable; do export "${variable?}"; done <"$1/variables"
    [ ! -f "$1/gpus" ] || { CUDA_VISIBLE_DEVICES=$(cat "$1/gpus") && export CUDA_VISIBLE_DEVICES; }
    # shellcheck disable=SC1091 # written by onbox/nodes/check.py
    [ ! -f "$1/nodes/env" ] || . "$1/nodes/env"
    [ ! -d "$3" ] || export VIRTUAL_ENV="$3" PATH="$3/bin:$PATH"
    # shellcheck disable=SC1091 # of an environment of conda's packages
    [ ! -r "$3/etc/conda/activate.sh" ] || . "$3/etc/conda/activate.sh"
    export BOXSTRAP_RUN="$1"
    # Keeps a simple command out of this shell's command line: a search there finds only its own process.
    # shellcheck disable=SC2016 # for the command's own shell
    [[ $4 = *[\;\&\|$'\n']* ]] || set -- "${@:1:3}" 'eval "$(<"$BOXSTRAP_RUN/command")"'
    set -- "${@:1:3}" ". \"\$1\"; shift; $4" "${0%/*}/command.sh"
    # A session of its own: the command outlives the terminal, and is ended as a whole.
    exec setsid bash -o pipefail -c "$4" bash "${@:5}"
  }

  # end CODE: writes what decided the exit code (`exit 7`, `pipeline 1 0`, `stop`, `interrupted …`), then the code itself.
  end() {
    [ "$1" = 0 ] || "${ours[@]}" runs.memory_kills "$run" "$1" 2>/dev/null
    [ -s "$run/ended" ] || echo "exit $1" >"$run/ended"
    # Whatever ends after a notice that the box is taken away ended because of it.
    [ ! -s "$run/interrupted" ] || echo "interrupted $(<"$run/interrupted")" >"$run/ended"
    # Into the room that was reserved, until it succeeds: no exit code is lost.
    until echo "$1" 1<>"$run/exit.new" && mv -f "$run/exit.new" "$run/exit"; do sleep 1; done
    # What it made, and left. Without this it is told at the next look, before another run begins there.
    setsid "${ours[@]}" run_processes over "$run" </dev/null >/dev/null 2>&1 &
    kill "$keeper" 2>/dev/null
    # The window may be a moment behind the log.
    [ -z "$shown" ] || { sleep 0.2 && kill "$shown"; } 2>/dev/null
    exit 0
  }

  # join_nodes: begins with the runs of the other nodes, once all are here; see onbox/nodes/watch.py.
  join_nodes() {
    trap stop TERM INT
    setsid bash "${0%/*}/node_watch.sh" "$(identity $$)" "$run" </dev/null >>"$run/nodes/output" 2>&1 &
    watch=$!
    until [ -e "$run/nodes/begun" ]; do sleep 0.1; done
  }

  # tell_nodes CODE WHY: how the command ended here, or that it is asked to end.
  tell_nodes() {
    [ -n "$watch" ] && [ ! -e "$run/nodes/over" ] || return
    [ ! -s "$run/interrupted" ] || set -- "$1" interrupted
    # Into room that was reserved.
    echo "$1 $2" 1<>"$run/nodes/code"
  }

  # await_nodes: until all have ended. Sets rc to the code of what ended them, if that was not here, and notes it.
  await_nodes() {
    local rank=0 code=143 why=unwatched own=0
    while kill -0 "$watch"; do wait "$watch"; done
    { read -r own <"$run/nodes/rank"; read -r rank code why <"$run/nodes/over"; }
    [ "$why" != "done" ] || return
    # What a launcher that was killed left would go on without the other nodes.
    "${ours[@]}" run_processes end "$run"
    case $why in
      stop) echo stop >"$run/ended" ;;
      *) [ "$rank" = "$own" ] || { echo "node $rank $code $why" >"$run/ended" && rc=$code; } ;;
    esac
  } 2>/dev/null

  stop() {
    trap '' TERM INT HUP
    tell_nodes 143 stop
    "${ours[@]}" run_processes end "$run" 2>/dev/null || { kill -TERM -- "-$child" && sleep 10; }
    kill -KILL -- "-$child" 2>/dev/null
    rc=143
    # The command's own exit code; a process stuck in a driver has none yet. `ended` says that it was stopped.
    kill -0 "$child" 2>/dev/null || { wait "$child"; rc=$?; }
    echo stop >"$run/ended"
    [ -z "$watch" ] || await_nodes
    end "$rc"
  }

  cd "$(<"$run/dir")" || end 125
  # Ending the session only closes a window: the command continues, until Ctrl-C or `boxstrap stop` ends it.
  trap : HUP
  # A queued run was already claimed by its waiter, which became this process: it gets a session that shows its log, of a
  # longer name if another repository's has that one.
  if [ -f "$run/pid" ] && [ "$(<"$run/pid")" = "$(identity $$)" ]; then
    name=${run##*/} key=${run%/*}
    for session in "$name" "$name-${key##*/}"; do
      tmux -u -L boxstrap -f /dev/null new-session -d -x 200 -y 50 -s "$session" bash "${0%/*}/window.sh" "$run" \; \
        set-option remain-on-exit on && printf '%s\n' "$session" >"$run/session" && break
    done >/dev/null 2>&1
  else
    claim "$run" || exit 1
  fi
  [ ! -f "$run/nodes/watch.json" ] || join_nodes
  begin "$run" "$env_file" "$(<"$run/venv")" "$(<"$run/command")" >>"$run/log" 2>&1 </dev/null &
  child=$!
  trap stop TERM INT
  # In a session of its own: it continues if this process is killed. It may be asked to end before it listens.
  find_identity "$child" || _identity=
  (trap '' TERM && exec setsid "${ours[@]}" runs.keep_log "$_identity" "$run") </dev/null >/dev/null 2>&1 &
  keeper=$!
  if [ -t 1 ]; then
    tail -n +1 -F "$run/log" 2>/dev/null &
    shown=$!
  fi
  while :; do
    wait "$child"
    rc=$?
    # A hang-up interrupts `wait`.
    if [ "$rc" -ne 129 ] || ! kill -0 "$child" 2>/dev/null; then break; fi
  done
  [ -z "$watch" ] || { trap '' TERM INT; tell_nodes "$rc" exit; trap 'tell_nodes 143 stop' TERM INT; await_nodes; }
  end "$rc"
}
