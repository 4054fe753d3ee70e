# shellcheck shell=bash disable=SC2034 # set here, read elsewhere
# sources: what the environment is made of, and how uv or pip is told.

# In this order: the profile's word, uv.lock, requirements.txt, pyproject.toml.
source_kind() {
  if [ -n "$LOCK" ]; then
    printf 'lock\n'
  elif [ -n "$REQUIREMENTS_SET" ]; then
    if [ "${#REQUIREMENTS[@]}" -gt 0 ]; then printf 'requirements\n'; else printf 'nothing\n'; fi
  elif [ -f "$REPO_DIR/uv.lock" ]; then
    printf 'lock\n'
  elif [ -f "$REPO_DIR/requirements.txt" ]; then
    printf 'requirements\n'
  elif [ -f "$REPO_DIR/pyproject.toml" ]; then
    printf 'project\n'
  else
    printf 'nothing\n'
  fi
}

requirement_files() {
  if [ -n "$REQUIREMENTS_SET" ]; then
    printf '%s\n' "${REQUIREMENTS[@]}"
  else
    printf 'requirements.txt\n'
  fi
}

source_files() {
  local file
  case $(source_kind) in
    lock)
      file=${LOCK:-uv.lock}
      printf '%s\n%s\n' "$file" "$(dirname "$file")/pyproject.toml"
      ;;
    project) printf 'pyproject.toml\n' ;;
    requirements) requirement_files | while IFS= read -r file; do with_included "$file" 8; done ;;
  esac
}

# with_included FILE DEPTH: a requirements file and those that it names.
with_included() {
  local line folder
  printf '%s\n' "$1"
  case $1 in */*) folder=${1%/*} ;; *) folder=. ;; esac
  [ "$2" -gt 0 ] || return 0
  sed -nE 's/^[[:space:]]*(-r|-c|--requirement|--constraint)[= ]*([^ #]+).*/\2/p' "$REPO_DIR/$1" 2>/dev/null |
    while IFS= read -r line; do with_included "$folder/$line" "$(($2 - 1))"; done
}

# The driver that NVML saw; it decides which build of torch fits.
driver_seen() { [ ! -r "$BOX_HOME/gpu.driver" ] || printf '%s\n' "$(<"$BOX_HOME/gpu.driver")"; }

# UV_SETTINGS for torch. An index of the user's own carries what it carries; only the default is chosen from.
choose_settings() {
  OWN_INDEX=
  case $TORCH_BACKEND in
    none) ;;
    auto)
      if has_own_index; then
        OWN_INDEX=yes
        return
      fi
      UV_SETTINGS+=(UV_TORCH_BACKEND=auto)
      [ -z "$(driver_seen)" ] || UV_SETTINGS+=(UV_CUDA_DRIVER_VERSION="$(driver_seen)")
      ;;
    *) UV_SETTINGS+=(UV_TORCH_BACKEND="$TORCH_BACKEND") ;;
  esac
}

has_own_index() {
  [ -n "${UV_DEFAULT_INDEX-}${UV_INDEX-}${UV_INDEX_URL-}${UV_EXTRA_INDEX_URL-}${UV_FIND_LINKS-}" ] ||
    [ "${#UV_SETTINGS[@]}" -gt 0 ]
}

# install_sources [--reinstall]
install_sources() {
  local file uv arguments=()
  while IFS= read -r file; do
    [ -f "$file" ] || fail requirements-missing "$file is not in the repository at ${REPO_COMMIT:0:12}"
  done < <(source_files)
  find_arguments || return 0
  if [ "$INSTALLER" = pip ]; then
    with_pip "$@"
  else
    ! ours || arguments+=(--exact)
    uv=run_uv
    uv=told_uv # full
    with_retries "$uv" "${arguments[@]}" "$@"
  fi
}

# Boxstrap made it, for this repository alone: it is made to match. One that was adopted, or shared, only gains.
ours() {
  [ -f "$VENV_DIR/.boxstrap" ] &&
    ! grep -lxF -- "$VENV_DIR" "$BOX_HOME"/steps/*/python.venv 2>/dev/null | grep -qvF "/$REPO_KEY/"
}

# These fill `arguments`, as uv takes them; with_pip translates. 1 where nothing is to be installed.
find_arguments() {
  case $(source_kind) in
    nothing) return 1 ;;
    lock) lock_arguments ;;
    project) project_arguments ;;
    requirements) requirements_arguments ;;
  esac
}

lock_arguments() {
  local extra
  UV_SETTINGS+=(UV_PROJECT_ENVIRONMENT="$VENV_DIR")
  arguments=(sync --frozen --inexact --project "$(dirname "${LOCK:-uv.lock}")")
  for extra in ${EXTRAS[@]+"${EXTRAS[@]}"}; do arguments+=(--extra "$extra"); done
}

project_arguments() {
  local names
  names=$(IFS=, && printf '%s' "${EXTRAS[*]-}")
  arguments=(pip install --python "$VENV_DIR/bin/python")
  # A project that can be built is installed as a link to its folder; else its dependencies alone.
  if grep -q '^\[build-system\]' pyproject.toml; then
    arguments+=(-e ".${names:+[$names]}")
  else
    arguments+=(-r pyproject.toml)
    for names in ${EXTRAS[@]+"${EXTRAS[@]}"}; do arguments+=(--extra "$names"); done
  fi
}

requirements_arguments() {
  local file
  arguments=(pip install --python "$VENV_DIR/bin/python")
  while IFS= read -r file; do arguments+=(-r "$file"); done < <(requirement_files)
  # pip looks into every index that a file names and takes the best; uv does so when told.
  if source_files | while IFS= read -r file; do cat -- "$file"; done | grep -qE '^[[:space:]]*--extra-index-url'; then
    arguments+=(--index-strategy unsafe-best-match)
  fi
}

with_pip() {
  local word words=()
  [ "${arguments[0]}" = pip ] || fail build-failed 'python.installer: pip cannot install a uv.lock' 'take uv, or name requirements'
  for word in "${arguments[@]:4}" ${1+"--force-reinstall"}; do
    case $word in --index-strategy | unsafe-best-match) ;; *) words+=("$word") ;; esac
  done
  with_retries our_pip install "${words[@]}"
  [ -n "${made-}" ] || ! ours || take_out_others # full
}

our_pip() { "$VENV_DIR/bin/python" -m pip "$1" --disable-pip-version-check --no-input "${@:2}" 3>&- 9>&-; }

# pip takes nothing out by itself. What it would not install anew goes, but for what an environment begins with.
take_out_others() {
  local others=() report=$SETUP_DIR/would.json
  [ "${words[${#words[@]} - 1]}" != --force-reinstall ] || unset "words[-1]"
  with_retries our_pip install --dry-run --ignore-installed --quiet --report "$report" "${words[@]}"
  mapfile -t others < <("$VENV_DIR/bin/python" -I "$BOX_HOME/box/pip_unlisted.py" "$report")
  [ "${#others[@]}" -eq 0 ] || our_pip uninstall -y "${others[@]}"
}

# uv, while what it says becomes progress: packages resolved, and bytes as the network counts them.
told_uv() {
  local line sizes=0 total=0 before sampler rc
  before=$(bytes_received)
  : >"$SETUP_DIR/sizes"
  while sleep 0.5; do
    emit progress "done=$(($(bytes_received) - before))" "total=$(cat "$SETUP_DIR/sizes")" unit=bytes
  done &
  sampler=$!
  run_uv "$@" 2>&1 | while IFS= read -r line; do
    printf '%s\n' "$line"
    case $line in
      *'Resolved '*)
        total=${line#*Resolved } total=${total%% *}
        emit progress done=0 "total=$total" unit=packages
        ;;
      *'Downloading '*'('*)
        sizes=$((sizes + $(in_bytes "${line##*\(}")))
        printf '%s\n' "$sizes" >"$SETUP_DIR/sizes"
        ;;
      *'Installed '*) emit progress "done=$total" "total=$total" unit=packages ;;
    esac
  done
  rc=${PIPESTATUS[0]}
  kill "$sampler" 2>/dev/null || :
  wait "$sampler" 2>/dev/null || :
  return "$rc"
}

bytes_received() { awk 'NR > 2 && $1 !~ /^lo:/ { sub(/^.*:/, ""); sum += $1 } END { printf "%d", sum }' /proc/net/dev 2>/dev/null || printf 0; }

# in_bytes "803.2MiB)": a whole number of bytes.
in_bytes() { awk -v size="$1" 'BEGIN { n = size + 0; if (size ~ /GiB/) n *= 1073741824; else if (size ~ /MiB/) n *= 1048576; else if (size ~ /KiB/) n *= 1024; printf "%d", n }'; }
