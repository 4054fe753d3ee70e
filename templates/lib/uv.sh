# shellcheck shell=bash
# uv: found on the box, or fetched from the index that the box uses anyway and checked against a known SHA-256.

# find_uv: sets UV to the one to use, UV_CERTS to what makes it trust the system's certificates; 1 if none is new enough.
find_uv() {
  local version
  UV_CERTS=UV_SYSTEM_CERTS
  for UV in "$BOX_HOME/bin/uv" "$(command -v uv || :)" "$HOME/.local/bin/uv" "$HOME/.cargo/bin/uv"; do
    if [ -x "$UV" ] && read -r _ version _ <<<"$("$UV" --version 2>/dev/null)" && at_least "$version" "$UV_OLDEST"; then
      at_least "$version" 0.11.0 || UV_CERTS=UV_NATIVE_TLS # newer ones warn of it, in each log
      return
    fi
  done
  return 1
}

# known_uv: sets UV and UV_CERTS as the step `agent` chose them; 1 if it is gone.
known_uv() { { { read -r UV && { read -r UV_CERTS || :; }; } <"$BOX_HOME/uv"; } 2>/dev/null && [ -x "$UV" ]; }

# at_least VERSION OLDEST: compares versions of three numbers.
at_least() {
  local IFS=. here least
  # shellcheck disable=SC2086 # the numbers
  printf -v here '%05d' $1 && printf -v least '%05d' $2 && [[ ! $here < $least ]]
}

# find_wheel: sets WHEEL to uv's file for this machine, WHEEL_SUM to its SHA-256; both are empty if there is none.
find_wheel() {
  local row machine
  machine=$(uname -sm)
  WHEEL='' WHEEL_SUM=''
  for row in "${UV_WHEELS[@]}"; do
    [ "${row%%|*}" = "${machine/ /-}" ] || continue
    row=${row#*|}
    WHEEL=${row%%|*} WHEEL_SUM=${row#*|}
  done
}

fetch_uv() {
  find_wheel
  [ -n "$WHEEL" ] || fail uv-missing "no uv is known for $(uname -sm): install it, then set up again"
  mkdir -p "$BOX_HOME/bin"
  if have python3; then
    with_retries python3 "$ONBOX" python.fetch_uv "$INDEX" "$WHEEL" "$WHEEL_SUM" "$BOX_HOME/bin/uv" || uv_failed
  elif have curl || have wget; then
    with_retries fetch_uv_plainly "$WHEEL" "$WHEEL_SUM" || uv_failed
  else
    fail uv-missing "uv can't be fetched: this box has no python3, curl or wget"
  fi
  find_uv || fail uv-missing "the uv that was fetched does not run here: $("$BOX_HOME/bin/uv" --version 2>&1 | head -n 1)"
}

uv_failed() {
  local unlisted='has no uv-|error:? 404'
  if grep -Eqi "$unlisted" "$STEP_LOG" && await_uv; then return; fi
  grep -q 'SHA-256' "$STEP_LOG" && fail uv-checksum "the downloaded uv does not have the expected SHA-256; it was not run"
  grep -Eqi "$unlisted" "$STEP_LOG" && fail uv-unlisted "the box's package index does not have uv $UV_VERSION"
  fail "$(classify_error "$STEP_LOG")" "uv could not be fetched"
}

# The machine that started this over a login sends the wheel if it can get it; an empty file says that it can't.
await_uv() {
  local sent=$SETUP_DIR/uv.whl
  [ -n "${CLIENT_SENDS-}" ] || return
  emit wait code=uv-unlisted
  begin_wait
  until [ -f "$sent" ]; do
    may_arrive uv "$SETUP_DIR/uv.sender" || return
    sleep 0.1
  done
  [ -s "$sent" ] && unpack_wheel "$sent" "$WHEEL_SUM"
}

# Without Python: uv is cut out of the wheel, which is a zip, with od and gzip.
fetch_uv_plainly() {
  local page link sum wheel=$BOX_HOME/bin/uv.whl
  page=$(download "${INDEX%/}/uv/") || return 1
  page=$(tr '<' '\n' <<<"$page" | grep -F "$1" | grep -v -F '.metadata"' | head -n 1) || {
    printf 'the index at %s has no %s\n' "$INDEX" "$1" >&2
    return 1
  }
  link=${page#*href=\"} link=${link%%\"*} link=${link%%#*}
  case $link in
    http://* | https://*) ;;
    /*) link=$(sed -E 's|^(https?://[^/]*).*|\1|' <<<"$INDEX")$link ;;
    *) link=${INDEX%/}/uv/$link ;;
  esac
  # The digest is computed while it arrives. A zip's directory comes last, so it is unpacked afterwards.
  sum=$(set -o pipefail && download "$link" | tee "$wheel" | sha256sum) && unpack_wheel "$wheel" "$2" "${sum%% *}"
}

# unpack_wheel FILE SHA256 [ITS]: takes uv out of the wheel, and removes the wheel. ITS is its SHA-256 if known.
unpack_wheel() {
  [ -n "${3-}" ] || digest "$1"
  if [ "${3:-$DIGEST}" != "$2" ]; then
    rm -f "$1"
    printf 'the SHA-256 of %s is wrong\n' "$WHEEL" >&2
    return 1
  fi
  cut_member "$1" "uv-$UV_VERSION.data/scripts/uv" | write_file "$BOX_HOME/bin/uv" 755
  rm -f "$1"
}

download() {
  if have curl; then curl -fsSL --compressed --retry 2 --connect-timeout 20 --speed-limit 1 --speed-time 20 "$1"; else wget -nv -O- -T 20 -t 3 "$1"; fi
}

# cut_member ZIP NAME: prints a member; the zip's directory says where it is and how long. There the name `uv` is
# followed by another entry, `uvx` by an x.
cut_member() {
  local at fields start
  at=$(grep -abo "$2[^a-z]" "$1" | tail -n 1 | cut -d: -f1)
  # Central directory header: 46 bytes before its name; sizes at 20, offset at 42 (APPNOTE 4.3.12).
  read -ra fields <<<"$(od -An -v -tu4 -j "$((at - 26))" -N 4 "$1") $(od -An -v -tu4 -j "$((at - 4))" -N 4 "$1")"
  # Local header: 30 bytes, then name and extra, whose lengths are at 26 (APPNOTE 4.3.7).
  read -ra start <<<"$(od -An -v -tu2 -j "$((fields[1] + 26))" -N 4 "$1")"
  {
    # A gzip header before the raw deflate stream; gzip only complains that the trailer is missing.
    printf '\037\213\010\0\0\0\0\0\0\377'
    tail -c "+$((fields[1] + 30 + start[0] + start[1] + 1))" "$1" | head -c "${fields[0]}"
  } | gzip -dc 2>/dev/null || :
}

# Reads the indexes that the box's pip is set to; uv does not read pip's settings itself.
read_indexes() {
  local name value
  UV_SETTINGS=()
  have python3 || return 0
  while IFS=$'\t' read -r name value; do
    # What the box set for uv itself wins.
    [ -n "${!name-}" ] || UV_SETTINGS+=("$name=$value")
  done < <(python3 "$ONBOX" pip_indexes)
}

run_uv() {
  env UV_SYSTEM_CERTS=1 "${UV_CERTS:-UV_NATIVE_TLS}=1" UV_NO_PROGRESS=1 UV_CACHE_DIR="$WORKDIR/.boxstrap/cache/uv" \
    UV_PYTHON_INSTALL_DIR="$BOX_HOME/python" UV_HTTP_TIMEOUT=20 UV_NO_MODIFY_PATH=1 \
    "${UV_SETTINGS[@]}" "$UV" "$@" 3>&- 9>&-
}
