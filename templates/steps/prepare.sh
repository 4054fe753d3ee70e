# shellcheck shell=bash disable=SC2016 # a command's own quotes are no code of ours
# prepare: the profile's commands before training, in its environment: once for the same commands and files in a tree.

# Digests the files that they name: by path, as an option's value, or as a module.
inputs_prepare() {
  local word last='' words=()
  read -ra words <<<"${PREPARE[*]//[\"\'=]/ }"
  inputs v1 "$REPO_DIR" "${PREPARE[@]}" "$(
    cd "$REPO_DIR" && for word in "${words[@]}"; do
      [ "$last" != -m ] || word=${word//./\/}.py # full
      last=$word # full
      [ ! -f "$word" ] || sha256sum -- "$word"
    done 2>/dev/null
  )"
}

# The tree itself remembers it: a tree that was made again has nothing that the commands wrote.
check_prepare() { [ -f "$(prepared_mark)" ]; }

prepared_mark() { printf '%s/boxstrap.prepared\n' "$(work_git rev-parse --absolute-git-dir)"; }

apply_prepare() {
  local command finished=0 rc
  for command in "${PREPARE[@]}"; do
    emit progress "done=$finished" "total=${#PREPARE[@]}" unit=commands # full
    printf '$ %s\n' "$command"
    rc=0
    (run_in_environment "$ENV_FILE" "$VENV_DIR" "$REPO_DIR" "$command") || rc=$?
    [ "$rc" -eq 0 ] || fail prepare-failed "it ended with exit code $rc: $command"
    finished=$((finished + 1)) # full
  done
  emit progress "done=$finished" "total=${#PREPARE[@]}" unit=commands # full
  : >"$(prepared_mark)"
}

# run_in_environment ENV_FILE VENV DIR COMMAND: as a training is run. The profile may set any variable, ours too.
run_in_environment() {
  cd "$3" || return
  unset LC_ALL
  export LANG="${LANG:-C.UTF-8}" PYTHONUNBUFFERED=1
  # shellcheck disable=SC1090 # written by the step `shell`
  [ ! -r "$1" ] || . "$1"
  export VIRTUAL_ENV="$2" PATH="$2/bin:$PATH"
  set +eu # full
  # shellcheck disable=SC1091 # of an environment of conda's packages
  [ ! -r "$2/etc/conda/activate.sh" ] || . "$2/etc/conda/activate.sh" # full
  exec bash -o pipefail -c "$4" </dev/null 3>&- 9>&-
}
