# shellcheck shell=bash
# smoke: does each GPU compute correctly, and as fast as its model should? Tested with the environment's own library.

inputs_smoke() {
  find_tried
  find_driver
  inputs v1 "$SMOKE" "$TRIED" "${TRIED:+$(tried_library)}" "$DRIVER" "$(gpus_seen)"
}

# Without an environment there is nothing to test with.
check_smoke() {
  find_tried
  [ -z "$TRIED" ] || [ -s "$BOX_HOME/smoke.said" ]
}

apply_smoke() {
  local rc=0
  find_tried
  if [ -z "$TRIED" ]; then
    printf 'there is no environment yet: only NVML was asked\n'
    return
  fi
  "$BOX_HOME/agent/bin/python" -I "$ONBOX" smoke.smoke --python "$TRIED/bin/python" --mode "$SMOKE" \
    --order "$BOX_HOME/gpu.order" --out "$BOX_HOME/gpu.json" --only "$ONLY" >"$BOX_HOME/smoke.new" 3>&- 9>&- || rc=$?
  report <"$BOX_HOME/smoke.new"
  [ "$rc" -eq 0 ] || return "$rc"
  mv -f "$BOX_HOME/smoke.new" "$BOX_HOME/smoke.said"
}

# Sets TRIED to the profile's environment; if only the box is checked, to the one that was built last.
find_tried() {
  local newest='' file
  TRIED=$VENV_DIR
  [ -z "$REPO_COMMIT" ] || return 0
  TRIED=
  for file in "$BOX_HOME"/steps/*/python.venv; do
    if [ -f "$file" ] && { [ -z "$newest" ] || [ "$file" -nt "$newest" ]; }; then newest=$file; fi
  done
  [ -z "$newest" ] || read -r TRIED <"$newest"
  [ -x "$TRIED/bin/python" ] || TRIED=
}

# Prints the libraries that compute there, by name and version.
tried_library() {
  (cd "$TRIED" 2>/dev/null && printf '%s ' lib/python*/site-packages/{torch-,cupy,nvidia_cublas}*.dist-info)
}

gpus_seen() { grep -o '"uuid": "[^"]*"' "$BOX_HOME/gpu.json" 2>/dev/null || :; }
