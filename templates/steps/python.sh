# shellcheck shell=bash disable=SC2034,SC2153 # set here, read elsewhere
# python: the environment, built at its final path by uv (or pip or conda where asked), or an existing one adopted.

inputs_python() {
  local sums
  # Computed once per process: what a training is made of starts with it.
  if [ -n "${PYTHON_INPUTS-}" ]; then INPUTS=$PYTHON_INPUTS && return; fi
  find_sources
  find_driver
  sums=$SUMS
  # In a shared environment each tree has its own link to the project.
  ! is_shared_venv || [ "$TREE_NUMBER" = 1 ] || [ -z "$HOLDS_PROJECT" ] || sums+=" $REPO_DIR"
  # The main tree's path: it makes no difference to the work in which tree it runs.
  local VENV_DIR=$MAIN_VENV
  # CHOSEN is what of it the user chose.
  inputs "$DRIVER" "$sums"
  CHOSEN=$INPUTS
  inputs v1 "$VENV_DIR" "$PYTHON_VERSION" "$INSTALLER" "$TORCH_BACKEND" "${EXTRAS[@]-}" "$DRIVER" "$sums" \
    "${ADDED_ARGUMENTS[@]}" "${BUILT_LAST[@]}" "${PYTHON_INDEX[@]}" ${AS_OF:+"$AS_OF"}
  CHOSEN=${INPUTS/" $CHOSEN"/ }
  sums=$(built_digest)
  [ -z "$sums" ] || INPUTS+="$sums "
  PYTHON_INPUTS=$INPUTS
}

# uv does not notice a package whose files are gone; the folders noted by the last build show it.
check_python() {
  local noted=$VENV_NOTES/python
  if [ "$REUSE" = never ] && [ -e "$noted.reused" ]; then return 1; fi
  ! has_other_python || return
  [ -x "$VENV_DIR/bin/python" ] && [ ! -e "$noted.building" ] && [ -f "$noted.folders" ] &&
    all_there "$VENV_DIR" "$noted.folders"
}

apply_python() {
  local again=() made='' user python noted=$VENV_NOTES/python
  ! user=$(live_run user "$REPO_KEY" "$VENV_DIR") ||
    fail environment-in-use "$VENV_DIR is in use by ${user##*/}" "wait for its end, or stop it: boxstrap stop --run ${user##*/}"
  end_compiling
  known_uv || fail uv-missing 'uv is gone from this box' 'set up again'
  cd "$REPO_DIR" || return
  if is_line "$noted.building" "made $VENV_DIR"; then
    # Its first build was cut short: uv takes half a package for a whole one, and nothing in it is worth keeping.
    rm -rf -- "$VENV_DIR"
  elif [ -e "$noted.building" ] || [ -f "$noted.folders" ]; then
    check_python || again=(--reinstall)
  fi
  [ -e "$VENV_DIR" ] || made="made $VENV_DIR"
  find_sources
  ACCEPTED=$STATED
  if is_remade; then
    # What is there stays until another Python is.
    ! has_other_python || python=$(find_python) || no_such_python
    made="made $VENV_DIR"
    [ -n "$CONDA" ] || rm -rf -- "$VENV_DIR"
  fi
  [ -d "$NOTES" ] || mkdir -p "$NOTES"
  write_file "$noted.building" 600 "$made"$'\n'
  [ -z "$made${again[*]-}" ] || [ ! -e "$noted.reused" ] || rm -f "$noted.reused"
  [ -z "$made" ] || find_image &
  read_indexes
  wait
  make_environment
  choose_settings
  await_dependencies
  [ -z "$made" ] || reuse_image "$noted.reused"
  fits_before
  compile_ahead "$SETUP_DIR/installed"
  install_sources "${again[@]}"
  : >"$SETUP_DIR/installed"
  fits_after
  report_lacking &
  local looking=$!
  # Importing importlib.metadata takes four times as long as reading all METADATA files.
  "$VENV_DIR/bin/python" -c 'import os, sys; [open(f, "rb").read() for p in sys.path if os.path.isdir(p) for e in os.scandir(p) for f in [e.path + "/METADATA"] if e.name.endswith(".dist-info") and os.path.exists(f)]' ||
    fail import-failed "$VENV_DIR/bin/python can't list its packages"
  list_packages "$VENV_DIR" "$noted.folders"
  wait "$looking"
  printf '%s\n' "$VENV_DIR" >"$noted.venv"
  rm -f "$noted.building"
}

make_environment() {
  local python seed=()
  if [ -n "$CONDA" ]; then make_conda_environment; return; fi
  if [ -x "$VENV_DIR/bin/python" ]; then
    [ -z "$PYTHON_VERSION" ] || fits_version "$VENV_DIR/bin/python" ||
      fail python-version "$VENV_DIR has Python $(version_of "$VENV_DIR/bin/python"); the profile wants $PYTHON_VERSION" \
        "choose another python.venv, or move it away on the box"
    printf 'adopted: %s\n' "$VENV_DIR"
    if [ "$INSTALLER" = pip ] && ! "$VENV_DIR/bin/python" -I -m pip --version >/dev/null 2>&1; then
      with_retries run_uv pip install --quiet --python "$VENV_DIR/bin/python" pip
    fi
    return
  fi
  python=$(find_python) || no_such_python
  [ "$INSTALLER" = uv ] || seed=(--seed)
  with_retries run_uv venv --quiet --allow-existing --no-project --python "$python" \
    "${seed[@]}" "$VENV_DIR"
  : >"$VENV_DIR/.boxstrap"
}

# Sets WANTED to the version that the profile wants, or else the repository's .python-version, of which only plain
# numbers are read; empty if neither wants one.
find_wanted() {
  local line
  WANTED=$PYTHON_VERSION
  [ -z "$WANTED" ] && [ -f "$REPO_DIR/.python-version" ] || return 0
  while read -r line || [ -n "$line" ]; do
    line=${line%$'\r'}
    case $line in '' | '#'*) continue ;; esac
    [[ ! $line =~ ^[0-9]+(\.[0-9]+)*$ ]] || WANTED=$line
    return 0
  done <"$REPO_DIR/.python-version" 2>/dev/null
}

# has_other_python: whether the environment is ours, and has another Python than is wanted.
has_other_python() {
  [ -z "$CONDA" ] || return
  find_wanted
  if [ -z "$WANTED" ] && [ -n "${ACCEPTED-}" ] && [ -x "$VENV_DIR/bin/python" ]; then
    case $(VIRTUAL_ENV=$VENV_DIR run_uv python find --no-python-downloads "$ACCEPTED" 2>/dev/null) in
      "$VENV_DIR"/*) return 1 ;;
      *) ours && return ;;
    esac
  fi
  [ -n "$WANTED" ] && read_text "$VENV_DIR/pyvenv.cfg" && [[ $TEXT =~ version(_info)?\ =\ ([0-9.]+) ]] || return
  case ${BASH_REMATCH[2]}. in "$WANTED".*) return 1 ;; esac
  ours
}

version_of() { "$1" -c 'import platform; print(platform.python_version())'; }
fits_version() { case $(version_of "$1"). in "$PYTHON_VERSION".*) return 0 ;; *) return 1 ;; esac; }

# The box's own interpreters first; uv installs one only if none fits.
find_python() {
  local wanted=("$PYTHON_VERSION")
  ! find_wanted || wanted=("$WANTED")
  ! read_text "$SETUP_DIR/image_path" || PATH=${TEXT%$'\n'}$PATH
  [ -n "${wanted[0]}" ] || wanted=("${ACCEPTED:-3}") # named, or uv looks for a file that does
  run_uv python find --python-preference only-system --no-python-downloads "${wanted[@]}" 2>/dev/null ||
    run_uv python find --no-python-downloads "${wanted[@]}" 2>/dev/null ||
    {
      # The repository decides where it comes from, so it is not for boxstrap's own tools.
      UV_SETTINGS+=(UV_PYTHON_INSTALL_DIR="$BOX_HOME/pythons")
      with_retries run_uv python install --no-bin "${wanted[@]}" >&2 && run_uv python find "${wanted[@]}"
    }
}

no_such_python() {
  ! is_network_error || fail "$(classify_error "$STEP_LOG")" "Python ${WANTED:-${PYTHON_VERSION:-${ACCEPTED:-as the repository asks}}} is not here, and could not be fetched"
  printf 'this box has:\n' >&2
  run_uv python list --only-installed --no-python-downloads >&2 || :
  fail python-version "Python ${WANTED:-${PYTHON_VERSION:-${ACCEPTED:-as the repository asks}}} is not here and could not be installed"
}
