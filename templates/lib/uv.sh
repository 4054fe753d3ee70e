# shellcheck shell=bash
# uv: as the step `agent` chose it, for the query `server`.

# known_uv: sets UV and UV_CERTS; 1 if it is gone.
known_uv() { { { read -r UV && { read -r UV_CERTS || :; }; } <"$BOX_HOME/uv"; } 2>/dev/null && [ -x "$UV" ]; }

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
