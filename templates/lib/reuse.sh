# shellcheck shell=bash
# reuse: copies packages that the image already has, if that is faster than fetching them. Nothing here fails a
# setup: what can't be reused is fetched.

# find_image: writes what there is to $SETUP_DIR/images, and to `image_path` the folders of its interpreters, which are
# tried first. If two places have the same, the first one counts.
find_image() {
  [ "$REUSE" = auto ] && [ "$INSTALLER" = uv ] && [ -z "$IS_LOCAL$CONDA" ] || return 0
  reuse find "$BOX_HOME/gpu.json" "$BOX_HOME" "$VENV_DIR" "$SETUP_DIR/images" "${VIRTUAL_ENV-}" "${CONDA_PREFIX-}" \
    /venv/* /opt/venv /opt/conda /opt/conda/envs/* /usr/local /usr /opt/miniconda3 /opt/miniforge3 \
    ~/miniconda3 ~/miniforge3 ~/anaconda3 >"$SETUP_DIR/image_path"
}

reuse() { "$BOX_HOME/agent/bin/python" -I -B "$ONBOX" python.reuse "$@" 3>&- 9>&-; }

# reuse_image NOTE: copies into the environment that was just made; NOTE says what, for a profile that says `never` later.
# uv says of a shadow what it would keep.
reuse_image() {
  local shadow=$SETUP_DIR/shadow
  [ -s "$SETUP_DIR/image_path" ] || return 0
  reuse shadow "$BOX_HOME/gpu.json" "$VENV_DIR" "$SETUP_DIR/images" "$shadow" "$TORCH_BACKEND" || return 0
  if (would_install "$shadow") >"$SETUP_DIR/kept" 2>&1; then
    reuse copy "$BOX_HOME/gpu.json" "$VENV_DIR" "$SETUP_DIR/images" "$SETUP_DIR/kept" "$1" | report || :
  fi
  rm -rf -- "$shadow"
}

# would_install ENVIRONMENT: prints what uv would do to it, without doing it.
would_install() {
  local arguments=() VENV_DIR=$1
  find_arguments && run_uv "${arguments[@]}" --exact --dry-run
}
