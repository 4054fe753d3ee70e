# shellcheck shell=bash disable=SC2034 # set here, read elsewhere
# sources: what the environment is made from, and the arguments for uv or pip.

# find_sources: once for each tree. Sets SOURCE_KIND to lock, requirements, project, conda or nothing; SOURCES to the files
# that the environment is made from, SUMS to their digests; SOURCE_ARGUMENTS to what installs them, and STANDS_IN to where
# that has to be done, if not in the tree; HOLDS_PROJECT if the repository itself is installed; STATED to the range of
# Pythons that its projects accept; BUILT to a digest of what their builds may read, COPIED to folders of which a copy is
# installed. Before a box has the program, or any Python, nothing is known.
find_sources() {
  local said=''
  [ "${SOURCES_OF-}" != "$REPO_DIR" ] || return 0
  SOURCES_OF=$REPO_DIR SOURCE_KIND=nothing STANDS_IN='' HOLDS_PROJECT='' SUMS='' STATED='' BUILT=''
  SOURCES=() SOURCE_ARGUMENTS=() COPIED=()
  if [ "${FINDER_OF-}" = "$REPO_DIR" ]; then
    ! (echo) 2>/dev/null 1>&"$TO_FINDER" || IFS= read -r -d '' said <&"$OF_FINDER" || :
    FINDER_OF=''
    exec {TO_FINDER}>&- {OF_FINDER}<&-
  fi
  eval "${said:-$(look_for_sources </dev/null 2>/dev/null)}"
}

look_for_sources() {
  onbox python.sources "$REPO_DIR" "$CONDA" "$LOCK" "$REQUIREMENTS_SET" ${REQUIREMENTS[@]+"${REQUIREMENTS[@]}"} -- \
    ${EXTRAS[@]+"${EXTRAS[@]}"} -- "${ADDED_ARGUMENTS[@]}" "${BUILT_LAST[@]}" 6>&- 9>&-
}

# begin_sources: starts the program that find_sources asks later: it loads while other things are done.
begin_sources() {
  [ -f "$ONBOX" ] || return 0
  { coproc FINDER { look_for_sources; }; } 2>/dev/null
  exec {TO_FINDER}>&"${FINDER[1]}" {OF_FINDER}<&"${FINDER[0]}"
  FINDER_OF=$REPO_DIR
}

# built_digest: prints a digest of what the builds read; nothing if there is nothing of it. None of it is part of what a
# run's work is: a changed file there changes the content anyway.
built_digest() {
  local folder
  DIGEST=$BUILT
  [ "${#COPIED[@]}" -eq 0 ] || digest <(
    printf '%s\n' "$BUILT"
    for folder in "${COPIED[@]}"; do placed_git rev-parse -q --verify "HEAD:$folder" 2>/dev/null; done
  )
  printf '%s' "$DIGEST"
}

# Sets DRIVER to the one that NVML saw; it decides which build of torch fits.
find_driver() {
  DRIVER=
  [ ! -r "$BOX_HOME/gpu.driver" ] || DRIVER=$(<"$BOX_HOME/gpu.driver")
}

# Adds the settings for torch to UV_SETTINGS. For `auto`, a user's own index is used as it is, without choosing a build.
choose_settings() {
  OWN_INDEX=
  [ "${#PYTHON_INDEX[@]}" -eq 0 ] || put_indexes_first
  case $TORCH_BACKEND in
    none) [ -z "$AS_OF" ] || UV_SETTINGS+=(UV_EXCLUDE_NEWER="$AS_OF") ;;
    auto)
      if has_own_index; then
        OWN_INDEX=yes
        return
      fi
      UV_SETTINGS+=(UV_TORCH_BACKEND=auto)
      find_driver
      [ -z "$DRIVER" ] || UV_SETTINGS+=(UV_CUDA_DRIVER_VERSION="$DRIVER")
      ;;
    *) UV_SETTINGS+=(UV_TORCH_BACKEND="$TORCH_BACKEND") ;;
  esac
}

# The profile's indexes come before those of the box.
put_indexes_first() {
  local setting others=${UV_INDEX-}
  for setting in "${UV_SETTINGS[@]}"; do
    case $setting in UV_INDEX=*) others=${setting#*=} ;; esac
  done
  UV_SETTINGS+=(UV_INDEX="${PYTHON_INDEX[*]} $others")
}

has_own_index() {
  [ -n "${UV_DEFAULT_INDEX-}${UV_INDEX-}${UV_INDEX_URL-}${UV_EXTRA_INDEX_URL-}${UV_FIND_LINKS-}" ] ||
    [ "${#UV_SETTINGS[@]}" -gt 0 ]
}

# install_sources [--reinstall]
install_sources() {
  local file exact=yes arguments=() again=("$@")
  find_sources
  for file in "${SOURCES[@]}"; do
    [ -f "$file" ] || fail requirements-missing "$file is not in the repository at ${REPO_COMMIT:0:12}"
  done
  if [ -n "$CONDA" ]; then add_to_conda; fi
  if find_arguments; then run_installer; fi
  exact=
  # A lock does not contain what the profile adds to it.
  [ "$SOURCE_KIND" != lock ] || add_requirements "${ADDED_TO_LOCK[@]}"
  add_requirements "${BUILT_LAST[@]}"
}

# add_requirements WORD...: installs with these arguments of uv's and pip's `install`; without any, does nothing.
add_requirements() {
  [ "$#" -gt 0 ] || return 0
  arguments=(pip install --python "$VENV_DIR/bin/python" "$@")
  run_installer
}

# Runs uv or pip with `arguments`; if `exact` is set, an environment of ours has nothing else afterwards.
run_installer() {
  local word
  if [ "$INSTALLER" = pip ]; then
    with_pip "${again[@]}"
  else
    [ -z "$exact" ] || ! ours || arguments+=(--exact)
    [ -n "${again[*]-}" ] || [ -n "${made-}" ] || [ -z "$(built_digest)" ] || for word in $(local_projects); do arguments+=(--reinstall-package "$word"); done
    with_retries run_uv_with_progress "${arguments[@]}" "${again[@]}"
  fi
}

# Whether boxstrap made it for this repository alone: then it is made to match. An adopted or shared one only gains.
ours() {
  [ -f "$VENV_DIR/.boxstrap" ] &&
    ! grep -lxF -- "$VENV_DIR" "$BOX_HOME"/steps/*/python.venv 2>/dev/null | grep -qvF "/$REPO_KEY/"
}

# Sets `arguments`, as uv takes them; with_pip translates them. 1 if there is nothing to install.
find_arguments() {
  find_sources
  if [ "$SOURCE_KIND" = lock ]; then
    UV_SETTINGS+=(UV_PROJECT_ENVIRONMENT="$VENV_DIR")
    arguments=(sync --frozen --inexact "${SOURCE_ARGUMENTS[@]}" "${LOCK_OPTIONS[@]}")
    return
  fi
  [ "$((${#SOURCE_ARGUMENTS[@]} + ${#ADDED_ARGUMENTS[@]}))" -gt 0 ] || return
  arguments=(pip install --python "$VENV_DIR/bin/python" "${SOURCE_ARGUMENTS[@]}" "${ADDED_ARGUMENTS[@]}")
  # A file may name them too: uv skips them there, since the override says that no Python needs them.
  if [ "${#NAMES_OF_LAST[@]}" -gt 0 ]; then
    printf "%s; python_version < '0'\n" "${NAMES_OF_LAST[@]}" >"$SETUP_DIR/last"
    arguments+=(--override "$SETUP_DIR/last")
  fi
}

with_pip() {
  # The box's pip may be set to install elsewhere.
  local -x PIP_USER=0 PIP_TARGET='' PIP_PREFIX='' PIP_ROOT=''
  local word words=()
  [ "${arguments[0]}" = pip ] || fail build-failed 'python.installer: pip cannot install a uv.lock' 'take uv, or name requirements'
  [ "${ADDED_ARGUMENTS[0]-}" != --group ] || our_pip install --help | grep -q -e '--group ' ||
    fail build-failed "the pip of $VENV_DIR is too old for python.groups" 'take uv, or renew pip there'
  for word in "${arguments[@]:4}" ${1+"--force-reinstall"}; do
    case $word in --index-strategy | unsafe-best-match | --override | "$SETUP_DIR/last" | --directory | "$STANDS_IN") ;; *) words+=("$word") ;; esac
  done
  for word in "${PYTHON_INDEX[@]}"; do words=(--extra-index-url "$word" "${words[@]}"); done
  with_retries our_pip install "${words[@]}"
  [ -z "$exact" ] || [ -n "${made-}" ] || ! ours || uninstall_others
}

our_pip() { (cd "${STANDS_IN:-.}" && exec "$VENV_DIR/bin/python" -I -m pip "$1" --disable-pip-version-check --no-input "${@:2}" 3>&- 9>&-); }

# pip removes nothing on its own. Removes what pip would not install again, except what every environment starts with.
uninstall_others() {
  local others=() report=$SETUP_DIR/would.json
  [ "${words[${#words[@]} - 1]}" != --force-reinstall ] || unset "words[-1]"
  with_retries our_pip install --dry-run --ignore-installed --quiet --report "$report" "${words[@]}"
  mapfile -t others < <("$VENV_DIR/bin/python" -I "$ONBOX" python.pip_unlisted "$report")
  [ "${#others[@]}" -eq 0 ] || our_pip uninstall -y "${others[@]}"
}

# local_projects: prints the names of what was installed from folders, as uv reads them: it does not see that files
# have changed which a build reads.
local_projects() {
  local file
  for file in "$VENV_DIR"/lib/python*/site-packages/*.dist-info/direct_url.json; do
    if read_text "$file" && [[ $TEXT == *'"dir_info"'* ]]; then
      file=${file%/direct_url.json} file=${file##*/}
      printf '%s\n' "${file%%-*}"
    fi
  done
}
