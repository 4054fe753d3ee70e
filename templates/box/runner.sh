#!/usr/bin/env bash
# runner: one training command, with its log, its exit code, and who is running it.
# usage: bash runner.sh RUN_DIR ENV_FILE
# Lines that end in `# full` are left out where every byte counts.
# shellcheck disable=SC2317 # a trap calls it
{
  run=$1 env_file=$2 keeper='' shown=

  # library: process

  # begin RUN_DIR ENV_FILE VENV COMMAND, in a process of its own: the profile may set any variable, ours too.
  begin() {
    # Nothing runs without being recorded. The runner's own line in this file had room, so this one has too.
    identity "$BASHPID" >>"$1/pid" || exit 125
    bash "${0%/*}/processes.sh" track "$1" "$BASHPID" 2>/dev/null # full
    # boxstrap works in the C locale; the training gets the box's own, or UTF-8.
    unset LC_ALL
    unset LC_MESSAGES LC_NUMERIC # full
    export LANG="${LANG:-C.UTF-8}" PYTHONUNBUFFERED=1
    # shellcheck disable=SC1090 # written by the step `shell`
    [ ! -r "$2" ] || . "$2"
    [ ! -f "$1/variables" ] || while IFS= read -r variable; do export "${variable?}"; done <"$1/variables" # full
    [ ! -f "$1/gpus" ] || { CUDA_VISIBLE_DEVICES=$(cat "$1/gpus") && export CUDA_VISIBLE_DEVICES; } # full
    [ ! -d "$3" ] || export VIRTUAL_ENV="$3" PATH="$3/bin:$PATH"
    # shellcheck disable=SC1091 # of an environment of conda's packages
    [ ! -r "$3/etc/conda/activate.sh" ] || . "$3/etc/conda/activate.sh" # full
    export BOXSTRAP_RUN="$1"
    # Keeps a simple command out of this shell's command line: a search there finds only its own process.
    # shellcheck disable=SC2016 # for the command's own shell
    [[ $4 = *[\;\&\|$'\n']* ]] || set -- "${@:1:3}" 'eval "$(<"$BOXSTRAP_RUN/command")"' # full
    set -- "${@:1:3}" ". \"\$1\"; shift; $4" "${0%/*}/command.sh" # full
    # A session of its own: the command outlives the terminal, and is ended as a whole.
    exec setsid bash -o pipefail -c "$4" bash "${@:5}"
  }

  # end CODE: writes what decided the exit code (`exit 7`, `pipeline 1 0`, `stop`, `interrupted …`), then the code itself.
  end() {
    [ "$1" = 0 ] || bash "${0%/*}/processes.sh" keep_kills "$run" "$1" 2>/dev/null # full
    [ -s "$run/ended" ] || echo "exit $1" >"$run/ended" # full
    # Whatever ends after a notice that the box is taken away ended because of it.
    [ ! -s "$run/interrupted" ] || echo "interrupted $(<"$run/interrupted")" >"$run/ended" # full
    # Into the room that was reserved, until it succeeds: no exit code is lost.
    until echo "$1" 1<>"$run/exit.new" && mv -f "$run/exit.new" "$run/exit"; do sleep 1; done
    bash "${0%/*}/processes.sh" keep_left "$run" 2>/dev/null # full
    # What it made. Without this it is told at the next look, before another run begins there.
    setsid "${run%/*/*/*}/agent/bin/python" -I -S -B "${0%/*}/onbox/__main__.py" results.keep_results end "$run" </dev/null >/dev/null 2>&1 & # full
    kill "$keeper" 2>/dev/null # full
    # The window may be a moment behind the log.
    [ -z "$shown" ] || { sleep 0.2 && kill "$shown"; } 2>/dev/null
    exit 0
  }

  stop() {
    trap '' TERM INT HUP
    bash "${0%/*}/processes.sh" end_all "$run" 2>/dev/null # full
    # First the one that can end the others in good order.
    for who in "" -; do
      kill -TERM -- "$who$child"
      for _ in {1..100}; do
        kill -0 -- "$who$child" || break
        sleep 0.1
      done
    done 2>/dev/null
    kill -KILL -- "-$child" 2>/dev/null
    rc=143
    # The command's own exit code; a process stuck in a driver has none yet. `ended` says that it was stopped.
    kill -0 "$child" 2>/dev/null || { wait "$child"; rc=$?; } # full
    echo stop >"$run/ended" # full
    end "$rc"
  }

  cd "$(<"$run/dir")" || end 125
  # Ending the session only closes a window: the command continues, until Ctrl-C or `boxstrap stop` ends it.
  trap : HUP
  # A queued run was already claimed by its waiter, which became this process.
  { [ -f "$run/pid" ] && [ "$(<"$run/pid")" = "$(identity $$)" ]; } || # full
    claim "$run" || exit 1
  begin "$run" "$env_file" "$(<"$run/venv")" "$(<"$run/command")" >>"$run/log" 2>&1 </dev/null &
  child=$!
  trap stop TERM INT
  # In a session of its own: it continues if this process is killed.
  find_identity "$child" || _identity= # full
  setsid bash "${0%/*}/keep_log.sh" "$_identity" "$run" </dev/null >/dev/null 2>&1 & # full
  keeper=$! # full
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
  end "$rc"
}
