# shellcheck shell=bash disable=SC2034,SC2153,SC2154 # set here, read elsewhere; the variables stand in front when it is sent
# server: a server of this repository for people, Jupyter or TensorBoard. With `want=start` it is found, or made and
# started; with `want=stop` it is ended. Its program has an environment of its own: the project's stays as it is.
# Lines: `doing WHAT`, `found yes`, `failed CODE`, `log LINE`, `stopped KIND`, `server JSON` (as the server wrote it).
# library: base errors uv

answer() { printf '%s\t%s\n' "$1" "${2-}" >&6; }

emit() { [ "$1" != wait ] || answer doing "${2#code=}, trying again"; }

server_failed() {
  answer failed "$1"
  tail -n 15 "$2" 2>/dev/null | cut -c 1-500 | while IFS= read -r line; do answer log "$line"; done
  exit
}

# A profile's settings of uv and pip are only for its own environment.
forget_settings() {
  local name
  while read -r name; do unset "$name"; done < <(sed -nE 's/^export ((UV|PIP)_[A-Z0-9_]+)=.*/\1/p' "$box_home/env" 2>/dev/null)
}

make_tool() {
  [ -x "$tool/bin/python" ] && is_text "$tool/complete" "$package" && return
  answer doing "installing $kind"
  rm -rf -- "$tool"
  with_retries run_uv venv --quiet --python-preference system --no-project "$tool" &&
    with_retries run_uv pip install --quiet --python "$tool/bin/python" "$package" &&
    write_file "$tool/complete" 600 "$package"
}

# What a kernel needs is next to the project's environment, in the project's own versions where it has them.
make_kernel() {
  local python=$venv/bin/python
  mkdir -p "$place/share/kernels/python3"
  write_file "$place/share/kernels/python3/kernel.json" 600 "$kernel"
  { printf '# %s\n' "$("$python" -VV | tr '\n' ' ')" && run_uv pip list --format freeze --python "$python"; } >"$place/project" || return
  [ -d "$place/kernel" ] && cmp -s "$place/project" "$place/kernel.for" && return
  answer doing "installing the kernel for ${venv##*/}"
  rm -rf -- "$place/kernel"
  install_kernel --constraint "$place/project" || { ! is_network_error && install_kernel; } || return
  mv -f "$place/project" "$place/kernel.for"
}

install_kernel() { with_retries run_uv pip install --quiet --python "$venv/bin/python" --target "$place/kernel" "$@" ipykernel; }

# Sets logdir to the folder above all that have TensorBoard's event files: a run is named by its path below it.
find_events() {
  local dir
  logdir=
  while IFS= read -r -d '' dir; do
    [ "$dir" = "$folder" ] || dir=${dir%/*}
    [ -n "$logdir" ] || logdir=$dir
    while [[ $dir/ != "$logdir"/* ]]; do logdir=${logdir%/*}; done
  done < <(timeout 20 find "$folder" -maxdepth 8 -name '.?*' -prune -o -name '*.tfevents.*' -printf '%h\0')
  [ -n "$logdir" ]
}

start_server() {
  rm -rf -- "$place/runtime"
  mkdir "$place/runtime"
  [ -s "$place/secret" ] || od -An -v -N24 -tx1 /dev/urandom | tr -d ' \n' | write_file "$place/secret" 600
  printf '%s\n' "${words[@]}" "$logdir" >"$place/words"
  (
    umask 022
    cd -- "$folder" || exit
    # Only kernels, which run the user's own code, get the secrets; a server that just shows files gets none.
    if [ "$kind" = jupyter ]; then
      # shellcheck disable=SC1091 # written by the step `shell`
      [ ! -r "$box_home/env" ] || . "$box_home/env"
      export VIRTUAL_ENV="$venv" PATH="$venv/bin:$PATH"
    fi
    unset "${!JUPYTER@}" "${!TENSORBOARD@}"
    exec env "${settings[@]}" setsid "$tool/bin/python" -I "${words[@]}" ${logdir:+--logdir "$logdir"}
  ) >"$place/log" 2>&1 </dev/null 6>&- 8>&- &
  identity "$!" >"$place/pid"
}

# Waits for what the server writes once it listens: its port, and how to log in.
await_server() {
  local until=$((SECONDS + 90)) file
  while :; do
    for file in "$place"/$says; do
      if read_text "$file" && [[ $TEXT == *'}'*([[:space:]]) ]]; then
        answer server "$(tr -d '\n' <"$file")"
        return
      fi
    done
    is_alive && [ "$SECONDS" -lt "$until" ] || return
    sleep 0.1
  done
}

is_alive() { alive "$(cat "$place/pid" 2>/dev/null)"; }

stop_server() {
  onbox run_processes reap 15 "$(cat "$place/pid")"
  rm -f -- "$place/pid" "$place/secret"
  answer stopped "$kind"
}

# TensorBoard keeps nothing outside its files: for another folder it is started again.
is_wanted() {
  is_alive || return
  [ -z "$logdir" ] || is_line "$place/words" "$logdir" || { stop_server 6>/dev/null && return 1; }
}

take() {
  if is_wanted; then
    answer found yes
  else
    known_uv || server_failed uv-missing /dev/null
    forget_settings
    read_indexes
    case $kind in
      jupyter) [ -x "$venv/bin/python" ] || server_failed no-environment /dev/null ;;
      tensorboard) [ -n "$logdir" ] || find_events || server_failed no-events /dev/null ;;
    esac
    make_tool >"$STEP_LOG" 2>&1 || server_failed install "$STEP_LOG"
    if [ "$kind" = jupyter ]; then make_kernel >"$STEP_LOG" 2>&1 || server_failed install "$STEP_LOG"; fi
    answer doing "starting $kind"
    start_server
  fi
  await_server || server_failed start "$place/log"
}

shopt -s extglob
reset_shell
exec 6>&1
find_home
BOX_HOME=$box_home WORKDIR=${box_home%/.boxstrap} PROGRAMS=$box_home/box/current
ONBOX=$PROGRAMS/onbox/__main__.py
tool=$box_home/tools/$kind STEP_LOG=$place/install.log
umask 077
if [ "$want" = start ] && [ ! -d "$box_home" ]; then server_failed uv-missing /dev/null; fi
if [ "$want" = start ] || [ -f "$place/pid" ]; then
  mkdir -p "$place" "${tool%/*}"
  exec 8>>"$box_home/tools/lock"
  flock 8
  if [ "$want" = start ]; then take; elif is_alive; then stop_server; fi
fi
