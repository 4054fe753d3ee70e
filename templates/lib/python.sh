# shellcheck shell=bash disable=SC2034,SC2153,SC2154 # set here, read elsewhere, and the reverse
# python: which Python does the steps. A box without one that works gets it before the first of them, from its packages,
# else by uv. What fails is told by the step that takes care of it elsewhere, in onbox/steps/tools.py and agent.py.

# bring_python ID SECONDS: waits that long for another setup to end.
bring_python() {
  open_setup "$1"
  exec 9>>"$BOX_HOME/lock"
  flock -n 9 || { STEP=setup emit wait code=busy && flock -w "$2" 9; } || finish 8 busy
  printf '%s\n' "$_identity" "$SCRIPT_ID" "$SETUP_ID" "$REPO_NAME ${REPO_COMMIT:0:12}" >"$BOX_HOME/lock"
  if [ -n "$LACKS" ]; then by_step preflight tell_lack; else STEP=preflight emit start why=new; fi
  if ! have python3 && can_install; then by_step tools install_python; fi
  find_python || by_step agent bring_by_uv
  find_python || finish 7
}

# by_step STEP COMMAND: runs it with the log of this step, which fails if the command does.
by_step() {
  STEP=$1 STEP_LOG=$SETUP_DIR/logs/$1.log CODE='' RC=7
  emit start why=new
  "$2" >"$STEP_LOG" 2>&1 </dev/null && return
  # shellcheck disable=SC2086 # a code may have a number after it
  emit fail code=${CODE:-$(classify_error "$STEP_LOG")} rc=1
  finish "$RC"
}

# The first of them.
tell_lack() {
  LACKS=${LACKS%%$'\n'*} LACKS=${LACKS#*$'\t'} RC=5
  failed "${LACKS%%$'\t'*}" "${LACKS#*$'\t'}"
}

failed() {
  CODE=$1
  printf '%s\n' "$2"
  return 1
}

# ---- from the box's packages -------------------------------------------------------------------

# What else every setup needs comes with it.
install_python() {
  local name names=(python3)
  for name in git tmux; do have "$name" || names+=("$name"); done
  [ -e /etc/ssl/certs/ca-certificates.crt ] || names+=(ca-certificates)
  name=$(manager)
  case $name in
    apt-get)
      APT=(env DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=a apt-get -qq -o DPkg::Lock::Timeout="$LOCK_PATIENCE" -o Acquire::Retries=3
        -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20 -o Dpkg::Use-Pty=0 -o Dpkg::Options::=--force-confold)
      await_package_run || return
      # One that was cut short.
      [ -z "$(as_root dpkg --audit 2>/dev/null)" ] || as_root dpkg --configure -a --force-confold || as_root "${APT[@]}" install -y --fix-broken || :
      with_retries update_apt || return
      set -- "${APT[@]}" install -y --no-install-recommends
      ;;
    zypper) set -- zypper --non-interactive install --no-recommends ;;
    pacman) set -- pacman -Sy --noconfirm --needed ;;
    apk) set -- apk add --no-cache ;;
    *) set -- "$name" install -y ;;
  esac
  with_retries as_root "$@" "${names[@]}"
}

as_root() { if [ "$EUID" -eq 0 ]; then "$@" 9>&-; else sudo -n "$@" 9>&-; fi; }

# apt only warns of a half-fetched index; a package that is not in it then looks like a missing one.
update_apt() {
  local out
  out=$(as_root "${APT[@]}" update 2>&1) && [[ $out != *'Failed to fetch'* ]] && return
  printf '%s\n' "$out"
  return 1
}

# As in onbox/packages.py.
await_package_run() {
  local until=$((SECONDS + LOCK_PATIENCE)) pid told=
  while pid=$(lock_holder) && [ -n "$pid" ]; do
    [ "$pid" = "$told" ] || emit wait code=dpkg-locked "pid=$pid"
    told=$pid
    [ "$SECONDS" -lt "$until" ] || failed "dpkg-locked pid=$pid" "process $pid ($(cat "/proc/$pid/comm")) has held the lock for over $LOCK_PATIENCE s; it was left alone" || return
    sleep 1
  done
}

# Prints the process that holds a lock of dpkg or apt, by /proc/locks (proc(5)): field 5; field 6 ends in the inode.
lock_holder() {
  local inodes
  inodes=$(stat -c %i /var/lib/dpkg/lock-frontend /var/lib/dpkg/lock /var/lib/apt/lists/lock /var/cache/apt/archives/lock 2>/dev/null)
  awk -v inodes="$inodes" 'BEGIN { split(inodes, list, "\n"); for (i in list) wanted[list[i]] }
    { n = split($6, at, ":"); if ($2 != "->" && $5 > 0 && at[n] in wanted) { print $5; exit } }' /proc/locks 2>/dev/null
}

# ---- by uv -------------------------------------------------------------------------------------

# uv takes a Python that is not called python3, or fetches one.
bring_by_uv() {
  for UV in "$BOX_HOME/bin/uv" uv "$HOME/.local/bin/uv" "$HOME/.cargo/bin/uv" ''; do ! have "$UV" || break; done
  [ -n "$UV" ] || { UV=$BOX_HOME/bin/uv && fetch_uv; } || return
  rm -rf -- "$BOX_HOME/agent"
  with_retries make_agent
}

# The repository's profile has no say in it.
make_agent() {
  cd / && env "${ENV_NAMES[@]/#/-u}" UV_SYSTEM_CERTS=1 UV_NO_PROGRESS=1 UV_CACHE_DIR="$BOX_HOME/cache/uv" UV_HTTP_TIMEOUT=20 \
    UV_PYTHON_INSTALL_DIR="$BOX_HOME/python" "$UV" venv --quiet --python-preference system --python '>=3.8' --no-project "$BOX_HOME/agent" 9>&-
}

fetch_uv() {
  local row machine
  machine=$(uname -sm)
  WHEEL=
  for row in "${UV_WHEELS[@]}"; do
    [ "${row%%|*}" != "${machine/ /-}" ] || { row=${row#*|} && WHEEL=${row%%|*} WHEEL_SUM=${row#*|}; }
  done
  [ -n "$WHEEL" ] || failed uv-missing "no uv is known for $machine: install it, then set up again" || return
  mkdir -p "$BOX_HOME/bin"
  if python3 -c 'import ssl, zlib' 2>/dev/null; then # an old one, which knows pip's settings
    with_retries python3 "$ONBOX" python.fetch_uv "$INDEX" "$WHEEL" "$WHEEL_SUM" "$UV" && return
  elif have curl || have wget; then
    with_retries fetch_plainly && return
  else
    failed uv-missing "uv can't be fetched: this box has no python3, curl or wget" || return
  fi
  uv_not_fetched
}

uv_not_fetched() {
  ! grep -Eqi 'has no uv-|error:? 404' "$STEP_LOG" || { CODE=uv-unlisted && await_uv && return; }
  ! grep -q SHA-256 "$STEP_LOG" || CODE=uv-checksum
  return 1
}

# The machine that started this over a login sends the wheel if it can get it; an empty file says that it can't. While
# it follows the setup, it writes `client` every few seconds.
await_uv() {
  local sent=$SETUP_DIR/uv.whl
  [ -n "${CLIENT_SENDS-}" ] || return
  emit wait code=uv-unlisted
  until [ -f "$sent" ]; do
    [ ! -e "$SETUP_DIR/uv.refused" ] && [ -n "$(find "$SETUP_DIR/client" "$SETUP_DIR/pid" -mmin -2 2>/dev/null)" ] || return
    sleep 0.2
  done
  [ -s "$sent" ] && unpack_wheel "$sent"
}

# uv is cut out of the wheel, which is a zip, with od and gzip.
fetch_plainly() {
  local page link
  page=$(download "${INDEX%/}/uv/") || return
  page=$(tr '<' '\n' <<<"$page" | grep -F "$WHEEL" | grep -v -F -m 1 '.metadata"') || failed '' "the index at $INDEX has no $WHEEL" || return
  link=${page#*href=\"} link=${link%%\"*} link=${link%%#*}
  case $link in
    http://* | https://*) ;;
    /*) link=$(sed -E 's|^(https?://[^/]*).*|\1|' <<<"$INDEX")$link ;;
    *) link=${INDEX%/}/uv/$link ;;
  esac
  download "$link" >"$UV.whl" && unpack_wheel "$UV.whl"
}

download() {
  if have curl; then curl -fsSL --compressed --retry 2 --connect-timeout 20 --speed-limit 1 --speed-time 20 "$1"; else wget -nv -O- -T 20 -t 3 "$1"; fi
}

# unpack_wheel FILE: takes uv out of the wheel, and removes that. The zip's directory says where it is and how long.
# There the name `uv` is followed by another entry, `uvx` by an x.
unpack_wheel() {
  local at fields start
  digest "$1"
  [ "$DIGEST" = "$WHEEL_SUM" ] || { rm -f "$1" && failed '' "the SHA-256 of $WHEEL is wrong"; } || return
  at=$(grep -abo "uv-$UV_VERSION.data/scripts/uv[^a-z]" "$1" | tail -n 1 | cut -d: -f1)
  # Central directory header: 46 bytes before its name; sizes at 20, offset at 42 (APPNOTE 4.3.12).
  read -ra fields <<<"$(od -An -v -tu4 -j "$((at - 26))" -N 4 "$1") $(od -An -v -tu4 -j "$((at - 4))" -N 4 "$1")"
  # Local header: 30 bytes, then name and extra, whose lengths are at 26 (APPNOTE 4.3.7).
  read -ra start <<<"$(od -An -v -tu2 -j "$((fields[1] + 26))" -N 4 "$1")"
  {
    # A gzip header before the raw deflate stream; gzip only complains that the trailer is missing.
    printf '\037\213\010\0\0\0\0\0\0\377'
    tail -c "+$((fields[1] + 30 + start[0] + start[1] + 1))" "$1" | head -c "${fields[0]}"
  } | { gzip -dc 2>/dev/null || :; } | write_file "$UV" 755
  rm -f "$1"
}
