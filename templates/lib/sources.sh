# shellcheck shell=bash disable=SC2034 # set here, read elsewhere
# sources: what the environment is made from, and the arguments for uv or pip.

# Sets SOURCE_KIND, in this order: what the profile says, uv.lock, requirements.txt, pyproject.toml. Extras are the
# project's: with them requirements.txt is not meant.
find_kind() {
  SOURCE_KIND=nothing
  if [ -n "$CONDA" ]; then SOURCE_KIND=conda && return; fi
  if [ -n "$LOCK" ]; then
    SOURCE_KIND=lock
  elif [ -n "$REQUIREMENTS_SET" ]; then
    [ "${#REQUIREMENTS[@]}" -eq 0 ] || SOURCE_KIND=requirements
  elif [ -f "$REPO_DIR/uv.lock" ]; then
    SOURCE_KIND=lock
  elif [ -f "$REPO_DIR/requirements.txt" ] && [ -z "${EXTRAS[*]-}" ]; then
    SOURCE_KIND=requirements REQUIREMENTS=(requirements.txt)
  elif [ -f "$REPO_DIR/pyproject.toml" ]; then
    SOURCE_KIND=project
  fi
}

# Sets SOURCES to the files that say what the environment is made from.
find_sources() {
  local file=${LOCK:-uv.lock} folder=. linked=
  SOURCES=() LINKED_FOLDERS=() COPIED_FOLDERS=() STANDS_IN=''
  find_kind
  case $SOURCE_KIND in
    lock)
      case $file in */*) folder=${file%/*} ;; esac
      SOURCES=("$file" "$folder/pyproject.toml")
      ;;
    project) SOURCES=(pyproject.toml) ;;
    requirements) for file in "${REQUIREMENTS[@]}"; do add_with_included "$file"; done ;;
    conda) conda_sources ;;
  esac
  for file in "${ADDED_ARGUMENTS[@]}" "${BUILT_LAST[@]}"; do
    add_folder_of "$file" "$linked"
    if [ "$file" = -e ]; then linked=yes; else linked=; fi
  done
  case $SOURCE_KIND:${ADDED_ARGUMENTS[0]-} in lock:* | project:*) ;; *:--group) SOURCES+=(pyproject.toml) ;; esac
}

# holds_project: whether the repository itself is installed from these, as a link to its tree or a copy of its files.
holds_project() {
  local kind=$SOURCE_KIND
  [ -z "${LINKED_FOLDERS[*]-}${COPIED_FOLDERS[*]-}" ] || return 0
  (
    cd "$REPO_DIR" && case $kind in
      lock) grep -qE '^source = \{ (editable|directory|path) = ' -- "${SOURCES[0]}" ;;
      project) grep -q '^\[build-system\]' pyproject.toml ;;
      conda) grep -qE '^ *- *["'\'']?(-e|--editable|file:|\.)' -- "${SOURCES[0]}" ;;
      requirements) grep -qE '^[[:space:]]*(-e|--editable|file:|\.|[A-Za-z0-9_.~-]*/)|@[[:space:]]*(file:|[./])' -- "${SOURCES[@]}" ;;
      *) return 1 ;;
    esac
  ) 2>/dev/null
}

# add_with_included FILE: adds a requirements file, and those that it names, to SOURCES. Every word that is the
# path of a file counts, as pip and uv may read it: installers differ in what follows an option, and in quotes.
# Without its NULs, which `read` drops, and its byte-order mark, UTF-16 is what it would be in UTF-8.
add_with_included() {
  local line word folder=. held=''
  SOURCES+=("$1")
  case $1 in */*) folder=${1%/*} ;; esac
  # Files may include each other.
  [ "${#SOURCES[@]}" -lt 99 ] && [ -f "$REPO_DIR/$1" ] || return 0
  case $1 in *.whl | *.zip | *.tar.*) return 0 ;; esac
  while IFS=$'\r' read -r line || [ -n "$line" ]; do
    while [[ $line == [^[:ascii:]]* ]]; do line=${line#?}; done
    if [[ $line == *\\ ]]; then held+=${line%?}' ' && continue; fi
    line=$held$line held=
    # Most lines name no file.
    case $line in '#'*) continue ;; *[/\\]* | *-[rcef]* | *--[rcef]* | .* | *.whl* | *.zip* | *.tar.*) ;; *) continue ;; esac
    if add_words "$line" "$folder"; then continue; fi
    for word in ${line%%#*}; do
      word=$folder/${word#-[rc]}
      [ ! -f "$REPO_DIR/$word" ] || add_with_included "$word"
    done
  done <"$REPO_DIR/$1"
}

# add_words LINE FOLDER
add_words() {
  local line=" $1" word words=() name linked=''
  case $line in *[[:space:]]'#'*) line=${line%%[[:space:]]#*} ;; esac
  while [[ $line =~ \$\{([A-Z0-9_]+)\} ]] && name=${BASH_REMATCH[1]} && [ -n "${!name+x}" ] && [[ ${!name} != *\$\{* ]]; do
    line=${line//"${BASH_REMATCH[0]}"/"${!name}"}
  done
  line=${line//[\"\']/}
  read -ra words <<<"$line"
  # A name may have spaces in it.
  for linked in '--?[a-z-]+[=[:space:]]+' -[rc]; do
    [[ ! $line =~ [[:space:]]$linked(.*[[:space:]].*[^[:space:]]) ]] || words+=("${BASH_REMATCH[1]//\\ / }")
  done
  linked=
  for word in "${words[@]}"; do
    case $word in
      -f | --find-links*) linked=folder ;;
      -e* | --editable*) linked=yes && word=${word#-e} word=${word#--editable} word=${word#=} ;;
      -f?*) word=${word#-f} ;;
    esac
    word=${word#-[rc]} word=${word#--*=}
    word=${word#@} word=${word#file:} word=${word#//}
    word=${word#"$REPO_DIR/"}
    case $word in '' | -* | /* | *://*) continue ;; esac
    if [ -f "$REPO_DIR/$2/$word" ]; then
      add_with_included "$2/$word"
    elif [ -f "$REPO_DIR/$word" ]; then
      add_with_included "$word"
    else
      add_folder "$word" "$2" "$linked"
    fi
  done
}

# add_folder_of REQUIREMENT LINKED: for one that the profile names.
add_folder_of() {
  local word=${1#*@}
  word=${word# } word=${word#file:}
  add_folder "${word#//}" . "$2"
}

# add_folder WORD FOLDER LINKED: notes a folder of the repository that is installed, if the word is one. Installers look
# for it from where they are started: in STANDS_IN, if it is found from the requirements file alone.
add_folder() {
  local word=${1%%[;#]*} at
  word=${word%%\[*}
  [[ $word == .* || $word == */* || $3 == folder ]] || return 0
  for at in "$word" "$2/$word"; do
    if [ "$3" = folder ] && [ -d "$REPO_DIR/$at" ]; then COPIED_FOLDERS+=("$at") && return; fi
    { [ -f "$REPO_DIR/$at/pyproject.toml" ] || [ -f "$REPO_DIR/$at/setup.py" ]; } || continue
    if [ "$at" != "$word" ]; then
      STANDS_IN=$REPO_DIR/$2
      at=$(cd "$REPO_DIR/$at" && pwd -P)/
      at=${at#"$(cd "$REPO_DIR" && pwd -P)"/}
      case $at in /*) return ;; '') at=. ;; *) at=${at%/} ;; esac
    fi
    if [ -n "$3" ]; then LINKED_FOLDERS+=("$at"); else COPIED_FOLDERS+=("$at"); fi
    return
  done
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
    [ -n "${again[*]-}" ] || [ -n "${made-}" ] || [ -z "$(find_built && built_digest)" ] || for word in $(local_projects); do arguments+=(--reinstall-package "$word"); done
    with_retries run_uv_with_progress "${arguments[@]}" "${again[@]}"
  fi
}

# Whether boxstrap made it for this repository alone: then it is made to match. An adopted or shared one only gains.
ours() {
  [ -f "$VENV_DIR/.boxstrap" ] &&
    ! grep -lxF -- "$VENV_DIR" "$BOX_HOME"/steps/*/python.venv 2>/dev/null | grep -qvF "/$REPO_KEY/"
}

# These fill `arguments`, as uv takes them; with_pip translates them. 1 if there is nothing to install.
find_arguments() {
  arguments=(pip install --python "$VENV_DIR/bin/python")
  find_sources
  case $SOURCE_KIND in
    lock) lock_arguments && return ;;
    project) project_arguments ;;
    requirements) requirements_arguments ;;
    conda) conda_arguments || return ;;
    nothing) [ "${#ADDED_ARGUMENTS[@]}" -gt 0 ] || return 1 ;;
  esac
  arguments+=("${ADDED_ARGUMENTS[@]}")
  # A file may name them too: uv skips them there, since the override says that no Python needs them.
  if [ "${#NAMES_OF_LAST[@]}" -gt 0 ]; then
    printf "%s; python_version < '0'\n" "${NAMES_OF_LAST[@]}" >"$SETUP_DIR/last"
    arguments+=(--override "$SETUP_DIR/last")
  fi
}

lock_arguments() {
  local extra
  UV_SETTINGS+=(UV_PROJECT_ENVIRONMENT="$VENV_DIR")
  arguments=(sync --frozen --inexact --project "$(dirname "${LOCK:-uv.lock}")" "${LOCK_OPTIONS[@]}")
  for extra in "${EXTRAS[@]}"; do arguments+=(--extra "$extra"); done
}

project_arguments() {
  local names
  names=$(IFS=, && printf '%s' "${EXTRAS[*]-}")
  # A project that can be built is installed as a link to its folder; of any other only the dependencies are installed.
  if grep -q '^\[build-system\]' pyproject.toml; then
    arguments+=(-e ".${names:+[$names]}")
  else
    arguments+=(-r pyproject.toml)
    for names in "${EXTRAS[@]}"; do arguments+=(--extra "$names"); done
  fi
}

requirements_arguments() {
  local file
  for file in "${REQUIREMENTS[@]}"; do arguments+=(-r "${STANDS_IN:+$REPO_DIR/}$file"); done
  [ -z "$STANDS_IN" ] || arguments+=(--directory "$STANDS_IN")
  cat() { command cat "$@" | tr -d '\0' | sed 's/^[^[:alnum:]#-]*--/--/'; }
  # pip looks into every index that a file names and takes the best; uv does so with this option.
  if cat -- "${SOURCES[@]}" | grep -qE '^[[:space:]]*--extra-index-url'; then
    arguments+=(--index-strategy unsafe-best-match)
  fi
  unset -f cat
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
