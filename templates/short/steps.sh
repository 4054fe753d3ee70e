# shellcheck shell=bash disable=SC2034,SC2088,SC2153 # set here, read elsewhere; the capitals are rendered
# steps: what the whole script does, each in its shortest form.

apply_preflight() {
  local place=$WORKDIR free
  until [ -d "$place" ]; do place=${place%/*} place=${place:-/}; done
  [ -w "$place" ] || refuse "$place can't be written"
  free=$(df -Pm "$place" | awk 'NR == 2 { print $4 }')
  [ "${free:-9999}" -ge "$MIN_FREE_MB" ] || refuse "$place has $free MB free, not $MIN_FREE_MB"
  case $(ldd --version 2>&1) in *musl*) refuse 'its C library is musl; PyTorch needs glibc' ;; esac
  { have git && have python3; } || can_install || refuse "git or python3 is missing, and can't be installed"
}

missing_tools() {
  local name
  for name in git tmux rsync python3; do have "$name" || printf '%s\n' "$name"; done
}

check_tools() { [ "${#PACKAGES[@]}" -eq 0 ] && { [ -z "$(missing_tools)" ] || ! can_install; }; }

apply_tools() {
  local names=()
  can_install || return 0
  mapfile -t names < <(missing_tools)
  [ "${#names[@]}" -eq 0 ] || [ -e /etc/ssl/certs/ca-certificates.crt ] || names+=(ca-certificates)
  names+=(${PACKAGES[@]+"${PACKAGES[@]}"})
  install_packages "${names[@]}"
}

check_shell() { return 1; }

# The environment file, and what makes every bash read it; other shells need the whole script.
apply_shell() {
  local pair value quote="'" file line='[ ! -r ~/.boxstrap/env ] || . ~/.boxstrap/env # boxstrap'
  for pair in "${PAIRS[@]}"; do
    value=${pair#*=}
    printf "export %s='%s'\n" "${pair%%=*}" "${value//$quote/$quote\\$quote$quote}"
  done | write_if_changed "$ENV_FILE" 600
  [ "${#GATHERED[@]}" -eq 0 ] || printf '%s\0' "${GATHERED[@]}" | write_file "$BOX_HOME/secrets" 600
  for file in "$HOME/.bashrc" "$HOME/.profile" "$HOME/.bash_profile"; do
    case $file in *_profile) [ -f "$file" ] || continue ;; esac
    is_line "$file" "$line" || { printf '%s\n' "$line" && cat "$file" 2>/dev/null; } | put_into "$file"
  done
  [ -f "$HOME/.no_auto_tmux" ] || : >"$HOME/.no_auto_tmux"
}

# Through the file itself, so that a link stays a link, and its mode.
put_into() {
  cat >"$BOX_HOME/rc.new"
  cat "$BOX_HOME/rc.new" >"$1"
  rm -f "$BOX_HOME/rc.new"
}

check_ssh() { return 1; }

apply_ssh() {
  local line
  mkdir -p "$HOME/.ssh"
  for line in ${AUTHORIZED_KEYS[@]+"${AUTHORIZED_KEYS[@]}"}; do
    authorized "$line" || add_line "$HOME/.ssh/authorized_keys" "$line"
  done
  unknown_hosts | while IFS= read -r line; do add_line "$HOME/.ssh/known_hosts" "$line"; done
  chmod 700 "$HOME/.ssh"
  [ ! -f "$HOME/.ssh/authorized_keys" ] || chmod 600 "$HOME/.ssh/authorized_keys"
}

# The verdict, within ten seconds; what hangs in a sick driver is left behind.
check_gpu() { return 1; }

apply_gpu() {
  local rc=0 order=$GPU_ORDER reader until=$((SECONDS + 10))
  [ -z "$ALIVE_RUN" ] || order="${order%\}},\"run_alive\":true}"
  python3 "$BOX_HOME/box/gpu.py" "$order" "$BOX_HOME/gpu.json" >"$BOX_HOME/gpu.said" 9>&- &
  reader=$!
  while kill -0 "$reader" 2>/dev/null; do
    [ "$SECONDS" -lt "$until" ] || { kill -9 "$reader" && fail gpu-hang 'the driver hangs'; }
    sleep 0.05
  done
  wait "$reader" || rc=$?
  cat "$BOX_HOME/gpu.said"
  sed -n 's/^driver //p' "$BOX_HOME/gpu.said" | write_file "$BOX_HOME/gpu.driver" 600
  sed -n 's/^reason return \([a-z0-9-]*\).*/\1/p' "$BOX_HOME/gpu.said" | head -n 1 >"$STEP_CODE"
  return "$rc"
}

python_stamp() { printf '%s\n' "$NOTES/python.short"; }

check_python() {
  inputs_python
  [ -x "$VENV_DIR/bin/python" ] && [ "$(cat "$(python_stamp)" 2>/dev/null)" = "$INPUTS" ]
}

apply_python() {
  mkdir -p "$BOX_HOME/bin" "$NOTES"
  rm -f "$(python_stamp)"
  find_uv || fetch_uv
  read_indexes
  cd "$REPO_DIR" || return
  make_environment
  choose_settings
  install_sources
  inputs_python
  printf '%s\n' "$INPUTS" | write_file "$(python_stamp)" 600
}

fetch_uv() {
  local row machine
  machine=$(uname -s)-$(uname -m)
  for row in "${UV_WHEELS[@]}"; do
    [ "${row%%|*}" = "$machine" ] || continue
    row=${row#*|}
    with_retries python3 "$BOX_HOME/box/fetch_uv.py" "$INDEX" "${row%%|*}" "${row#*|}" "$BOX_HOME/bin/uv" ||
      fail uv-checksum 'uv could not be fetched'
  done
  find_uv || fail uv-missing "no uv for $machine"
}

install_sources() {
  local file arguments=()
  while IFS= read -r file; do
    [ -f "$file" ] || fail requirements-missing "$file is not in the commit"
  done < <(source_files)
  case $(source_kind) in
    nothing) return ;;
    lock) lock_arguments ;;
    project) project_arguments ;;
    requirements) requirements_arguments ;;
  esac
  # What boxstrap made is made to match; what was there before only gains.
  [ ! -f "$VENV_DIR/.boxstrap" ] || arguments+=(--exact)
  with_retries run_uv "${arguments[@]}"
}

no_such_python() { fail python-version "no Python $PYTHON_VERSION here, and none came"; }

check_train() {
  local dir
  find_work
  dir=$(run_of "$WORK") || return
  case $(run_state "$dir") in
    waiting) return 1 ;;
    died) [ "$TRAIN_AT_BOOT" != restart ] ;;
  esac
}

apply_train() {
  find_work
  if ! RUN_DIR=$(run_of "$WORK") || [ "$(run_state "$RUN_DIR")" != waiting ]; then new_run "$WORK"; fi
  begin_run "$RUN_DIR"
}

# In tmux where it is, else in a session of the kernel's own.
begin_run() {
  local session until=$((SECONDS + 10))
  session=$(session_name)
  printf '%s\n' "$session" >"$1/session"
  set -- bash "$BOX_HOME/box/runner.sh" "$1" "$ENV_FILE"
  if have tmux; then
    our_tmux kill-session -t "=$session" 2>/dev/null || :
    our_tmux new-session -d -s "$session" -c "$REPO_DIR" "$@" ';' set-option remain-on-exit on
  else
    setsid "$@" </dev/null >/dev/null 2>&1 9>&- &
  fi
  until [ -f "$3/pid" ]; do
    [ "$SECONDS" -lt "$until" ] || fail run-not-begun "the run in $3 did not begin"
    sleep 0.05
  done
}
