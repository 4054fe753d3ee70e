# shellcheck shell=bash
# reuse: what the image brings of the environment is copied where that is quicker than fetching it. Nothing here
# fails a setup: what can't be reused is fetched.

# find_image: what there is, in $SETUP_DIR/images; in `image_path`, where its interpreters lie, to be asked first.
find_image() {
  [ "$REUSE" = auto ] && [ "$INSTALLER" = uv ] && [ -z "$IS_LOCAL$CONDA" ] || return 0
  reuse find "$BOX_HOME/gpu.json" "$BOX_HOME" "$VENV_DIR" "$SETUP_DIR/images" >"$SETUP_DIR/image_path"
}

reuse() { "$BOX_HOME/agent/bin/python" -B "$PROGRAMS/reuse.py" "$@" 3>&- 9>&-; }

# reuse_image NOTE: into the environment that was just made. By the shadow uv says what it would keep of the image's.
reuse_image() {
  local shadow=$SETUP_DIR/shadow
  [ -s "$SETUP_DIR/image_path" ] || return 0
  reuse shadow "$BOX_HOME/gpu.json" "$VENV_DIR" "$SETUP_DIR/images" "$shadow" "$TORCH_BACKEND" || return 0
  if (would_install "$shadow") >"$SETUP_DIR/kept" 2>&1; then copy_packages "$1"; fi
  rm -rf -- "$shadow"
}

# would_install ENVIRONMENT: what uv would do to it; it does nothing.
would_install() {
  local arguments=() VENV_DIR=$1
  find_arguments && run_uv "${arguments[@]}" --exact --dry-run
}

# copy_packages NOTE: what was reused is noted, for a profile that says `never` later.
copy_packages() {
  local word first second third note=$1
  reuse copy "$BOX_HOME/gpu.json" "$VENV_DIR" "$SETUP_DIR/images" "$SETUP_DIR/kept" |
    while read -r word first second third; do
      case $word in
        progress) emit progress "done=$first" "total=$second" unit=bytes ;;
        reused)
          write_file "$note" 600 "$first $second $third"$'\n'
          emit note code=image-reused "count=$first" "have=$second" "secs=$third"
          ;;
        *) printf '%s\n' "$word $first $second $third" ;;
      esac
    done || :
}
