# shellcheck shell=bash disable=SC2016,SC2153 # a command's own quotes are no code of ours; set elsewhere
# prepare: the profile's commands before training, in its environment: once for the same commands, files and data in a
# tree.

# Digests the files that they name (by path, as an option's value, or as a module) and the data that they read.
inputs_prepare() {
  local word last='' words=()
  read -ra words <<<"${PREPARE[*]//[\"\'=]/ }"
  inputs v1 "$REPO_DIR" "${PREPARE[@]}" "$(
    cd "$REPO_DIR" && for word in "${words[@]}"; do
      [ "$last" != -m ] || word=${word//./\/}.py
      last=$word
      [ ! -f "$word" ] || sha256sum -- "$word"
    done 2>/dev/null
  )"
  PREPARE_ITSELF=$INPUTS
  [ ! -f "$NOTES/prepare.read" ] || { digest <(data_read) && INPUTS=$PREPARE_ITSELF$DIGEST; }
}

# data_read: prints what stands for the data that the commands read: the profile's and what was pushed by content,
# shared files by size and time. Those that the commands wrote themselves, and those that came later, don't count.
data_read() {
  case " ${STEPS[*]} " in *' data '*) facts | onbox steps.data ;; *) echo ;; esac
  pushed_content
  xargs -0 -r stat -c '%s %y %n' -- <"$NOTES/prepare.read" 2>/dev/null || :
}

# pushed_content: prints content and name of each file that was pushed, to this repository's folders or to none's.
pushed_content() {
  local record target
  for record in "$BOX_HOME"/data/*.jsonl; do
    { IFS= read -r target <"$record"; } 2>/dev/null || continue
    target=${target#'{"target": "'}
    ! of_another_repository "${target%'"}'}" || continue
    printf '%s\n' "$target"
    sed -nE 's/^\[(.*), [0-9]+, -?[0-9]+, -?[0-9]+, "([0-9a-f]{64})"\]$/\2\1/p' "$record" |
      awk '{ last[substr($0, 65)] = substr($0, 1, 64) } END { for (name in last) print last[name] name }' | sort
  done
}

# of_another_repository FOLDER
of_another_repository() {
  local note dir
  for note in "$BOX_HOME"/steps/*/repo.dir; do
    { read -r dir <"$note"; } 2>/dev/null || continue
    case $1/ in "$MAIN_DIR"[/@]*) return 1 ;; "$dir"[/@]*) [ "$dir" = "$MAIN_DIR" ] || return 0 ;; esac
  done
  return 1
}

# shared_files: prints the files of the shared folders, with sizes and times, except results.
shared_files() {
  local path results=()
  for path in ${RESULTS[@]+"${RESULTS[@]}"}; do
    results+=(-not -path "$MAIN_DIR/${path%/}" -not -path "$MAIN_DIR/${path%/}/*")
  done
  for path in ${SHARED[@]+"${SHARED[@]}"}; do
    find -H "$MAIN_DIR/$path" ${results[@]+"${results[@]}"} -type f -printf '%p\t%s\t%T@\0' 2>/dev/null || :
  done | sort -z
}

# The tree itself remembers it: a tree that was made again has nothing that the commands wrote.
check_prepare() { [ -f "$(prepared_mark)" ]; }

prepared_mark() { printf '%s/boxstrap.prepared\n' "$(work_git rev-parse --absolute-git-dir)"; }

apply_prepare() {
  local command finished=0 rc
  shared_files >"$NOTES/prepare.before"
  for command in "${PREPARE[@]}"; do
    emit progress "done=$finished" "total=${#PREPARE[@]}" unit=commands
    printf '$ %s\n' "$command"
    rc=0
    (run_in_environment "$ENV_FILE" "$VENV_DIR" "$REPO_DIR" "$command") || rc=$?
    [ "$rc" -eq 0 ] || fail prepare-failed "it ended with exit code $rc: $command"
    finished=$((finished + 1))
  done
  emit progress "done=$finished" "total=${#PREPARE[@]}" unit=commands
  # What is the same before and after was not written by them.
  comm -z -12 "$NOTES/prepare.before" <(shared_files) | sed -z 's/\t[0-9]*\t[0-9.]*$//' >"$NOTES/prepare.read"
  rm -f "$NOTES/prepare.before"
  : >"$(prepared_mark)"
}

# run_in_environment ENV_FILE VENV DIR COMMAND: as a training is run. The profile may set any variable, ours too.
run_in_environment() {
  cd "$3" || return
  unset LC_ALL LC_MESSAGES LC_NUMERIC
  export LANG="${LANG:-C.UTF-8}" PYTHONUNBUFFERED=1
  # shellcheck disable=SC1090 # written by the step `shell`
  [ ! -r "$1" ] || . "$1"
  export VIRTUAL_ENV="$2" PATH="$2/bin:$PATH"
  set +eu
  # shellcheck disable=SC1091 # of an environment of conda's packages
  [ ! -r "$2/etc/conda/activate.sh" ] || . "$2/etc/conda/activate.sh"
  exec bash -o pipefail -c "$4" </dev/null 3>&- 9>&-
}
