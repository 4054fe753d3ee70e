# shellcheck shell=bash
# fits: is torch built for this box's GPU and driver? Reported before gigabytes are fetched, if it can be known then.

# If no GPU is required, any build will do.
any_build_fits() { read_text "$BOX_HOME/gpu.order" && [[ $TEXT == *'"require":false'* ]]; }

fits_gpu() {
  ! any_build_fits || return 0
  [ -s "$BOX_HOME/gpu.json" ] || return 0
  onbox python.torch_compat "$1" "$BOX_HOME/gpu.json" "$TORCH_BACKEND" "${@:2}" | report
  return "${PIPESTATUS[0]}"
}

fits_before() {
  local files arguments=()
  ! any_build_fits || return 0
  find_sources
  files=(${SOURCES[@]+"${SOURCES[@]}"})
  # With a package index of the user's own only uv knows: a dry run prints what it would take, and fetches nothing.
  if [ -n "$OWN_INDEX" ] && [ "$INSTALLER" = uv ] && find_arguments && [ "${arguments[0]}" = pip ]; then
    run_uv "${arguments[@]}" --dry-run >"$SETUP_DIR/would" 2>&1 || :
    files+=("$SETUP_DIR/would")
  fi
  fits_gpu before ${files[@]+"${files[@]}"}
}

fits_after() {
  local site
  for site in "$VENV_DIR"/lib/python*/site-packages; do fits_gpu after "$site"; done
}

# Says which libraries modules of the environment need, and the box lacks.
report_lacking() {
  local site
  for site in "$VENV_DIR"/lib/python*/site-packages; do onbox python.lacking "$site"; done | report
}
