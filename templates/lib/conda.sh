# shellcheck shell=bash disable=SC2034 # set here, read elsewhere
# conda: an environment of conda packages, made by rattler, which uv keeps in its cache. The file's pip section is
# installed afterwards.

# is_remade: whether the existing environment is replaced: it is ours, and has or is to have conda packages, or
# another Python.
is_remade() { has_other_python || { { [ -n "$CONDA" ] || [ -d "$VENV_DIR/conda-meta" ]; } && ours; }; }

make_conda_environment() {
  local rc=0
  [ -f "$CONDA" ] || fail requirements-missing "$CONDA is not in the repository at ${REPO_COMMIT:0:12}"
  [ ! -e "$VENV_DIR" ] || ours ||
    fail build-failed "$VENV_DIR is there, and python.conda makes an environment of its own" 'choose another python.venv'
  with_retries run_conda || rc=$?
  case $rc in
    0) : >"$VENV_DIR/.boxstrap" ;;
    3) fail resolve-failed "no environment satisfies $CONDA" ;;
    *) fail "$(classify_error "$STEP_LOG")" "no environment could be built from $CONDA" ;;
  esac
}

# The box's settings decide where these tools come from, as for boxstrap's own.
run_conda() {
  local tool tools=()
  for tool in "${CONDA_TOOLS[@]}"; do tools+=(--with "$tool"); done
  (
    follow_the_box_alone
    read_indexes
    run_uv run --quiet --isolated --no-project --python-preference system --python '>=3.10' "${tools[@]}" -- \
      python -I -B "$ONBOX" conda.environment "$REPO_DIR/$CONDA" "$VENV_DIR" "$WORKDIR/.boxstrap/cache/conda" \
      "$SETUP_DIR/of_pip" "$PYTHON_VERSION"
  ) | report
  return "${PIPESTATUS[0]}"
}

# add_to_conda: installs the file's pip section, whose paths are relative to the file's folder. It removes nothing:
# uv would take the conda packages for ones that nobody requires.
add_to_conda() {
  local words=() PWD_BEFORE=$PWD
  exact=
  mapfile -t words <"$SETUP_DIR/of_pip"
  case $CONDA in */*) cd "${CONDA%/*}" || return ;; esac
  # As for a requirements file that names an index.
  case " ${words[*]-}" in *' --extra-index-url'*) words+=(--index-strategy unsafe-best-match) ;; esac
  add_requirements ${words[@]+"${words[@]}"}
  cd "$PWD_BEFORE" || return
}
