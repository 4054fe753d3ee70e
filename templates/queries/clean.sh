# shellcheck shell=bash disable=SC2034,SC2153,SC2154 # set here, read elsewhere; the variables stand in front when it is sent
# clean: removes each tree beside a main one whose runs are over and that contains only what was placed, an environment
# of ours and caches; a tree that `discard` names, whatever it contains. With `look` nothing is removed.
# Prints for each tree what it holds (`holds KIND COUNT NAME...`), then a line that says what became of it;
# then the bytes of copies of results; then what else the box can do without (`thing KIND NAME BECAME BYTES`).
# library: base repository git trees queries/holds queries/program

CACHES=(__pycache__/ '*.egg-info/' .pytest_cache/ .mypy_cache/ .ruff_cache/)

# Prints what prevents removing the tree, whatever it holds.
who_uses_it() {
  local run dir count point
  if run=$(is_held "$REPO_DIR"); then holds run 1 "${run##*/}"; fi
  for dir in "$BOX_HOME"/runs/*/*/left; do
    dir=${dir%/left}
    if [ -f "$dir/left" ] && is_line "$dir/dir" "$REPO_DIR" && count=$(left_of "$dir") && [ "$count" -gt 0 ]; then
      holds left "$count" "${dir##*/}"
    fi
  done
  if [ -L "$REPO_DIR" ]; then holds link 1 "$(readlink -- "$REPO_DIR")"; fi
  while read -r _ _ _ _ point _; do
    case $point in "$(realpath -m -- "$REPO_DIR")" | "$(realpath -m -- "$REPO_DIR")"/*) holds mount 1 "$point" ;; esac
  done < <(grep -aF -- "${REPO_DIR##*/}" /proc/self/mountinfo)
}

# Prints what somebody made there; 1 if git can't tell.
what_was_made() {
  local edits staged commits files
  [ -d "$REPO_DIR/.git" ] && [ -f "$PLACED/index" ] || return
  mapfile -d '' -t edits < <(placed_git diff --name-only -z --no-ext-diff --ignore-submodules=all --diff-filter=d && printf '/\0')
  mapfile -d '' -t staged < <(work_git diff --cached --name-only -z --no-ext-diff --ignore-submodules=all --diff-filter=d HEAD -- && printf '/\0')
  mapfile -t commits < <(own_commits && printf '/\n')
  mapfile -d '' -t files < <(all_new_files && printf '/\0')
  holds_if_whole edits "${edits[@]}" && holds_if_whole staged "${staged[@]}" && holds_if_whole commits "${commits[@]}" && holds_if_whole files "${files[@]}" && own_repositories
}

# Prints commits of its branches, tags and stashes that were never sent to this box.
own_commits() {
  local heads
  heads=$(work_git rev-parse -q --verify HEAD && work_git for-each-ref --format='%(objectname)') || return
  # shellcheck disable=SC2086 # ids
  placed_git rev-list --oneline --no-abbrev-commit $heads --not --all
}

# Prints files that were not placed, including those that git ignores.
all_new_files() {
  local file left_out=() line
  for line in "${CACHES[@]}"; do left_out+=("--exclude=$line"); done
  while IFS= read -r -d '' file; do
    file=${file%/pyvenv.cfg}
    [ ! -f "$file/.boxstrap" ] || left_out+=("--exclude=${file#"$REPO_DIR"}/")
  done < <(find "$REPO_DIR" -maxdepth 5 -name pyvenv.cfg -print0)
  while IFS= read -r line; do
    if [[ $line == /* ]] && is_shared "${line#/}"; then left_out+=("--exclude=$line"); fi
  done < <(cat "$REPO_DIR/.git/info/exclude" 2>/dev/null)
  placed_git ls-files --others -z "${left_out[@]}"
}

# Moved out of sight in one step: the next setup removes what a kill leaves of it.
remove_tree() {
  local aside=$BOX_HOME/trees/${REPO_DIR##*/}-$$
  mkdir -p "${aside%/*}"
  [ ! -e "$REPO_DIR" ] || mv -T -- "$REPO_DIR" "$aside" || return
  rm -rf -- "$NOTES"
  rm -rf --one-file-system -- "$aside"
  rmdir -- "${aside%/*}" "${NOTES%/*}" 2>/dev/null
  [ ! -e "$aside" ]
}

clean_tree() {
  local used held='' size became=kept
  used=$(who_uses_it)
  if [ -e "$REPO_DIR" ] && [ -z "$used" ]; then held=$(what_was_made) || held+=$'\n'$(holds unread 1); fi
  size=$(du -sk -- "$REPO_DIR" 2>/dev/null)
  if [ -z "$look$used" ] && { [ -z "$held" ] || [[ $'\n'$discard$'\n' == *$'\n'"${REPO_DIR##*/}"$'\n'* ]]; }; then
    became=removed
    remove_tree || became=left
  elif [ -z "$used$held" ]; then
    became=safe
  fi
  [ -z "$used" ] || printf '%s\n' "$used"
  [ -z "$held" ] || printf '%s\n' "$held"
  answer tree "$REPO_KEY" "${REPO_DIR##*/}" "$became" "${size%%$'\t'*}"
}

# Reports names in `discard` that are no tree; then nothing is removed.
find_unknown() {
  local name there
  there=$(cat "$BOX_HOME"/steps/*/beside/*/repo.dir 2>/dev/null)
  while IFS= read -r name; do
    case $name:$there$'\n' in :*) ;; *:*"/$name"$'\n'*) ;; *) answer unknown "$name" && look=yes ;; esac
  done <<<"$discard"
}

clean_all() {
  local notes dir
  for notes in "$BOX_HOME"/steps/*/beside/*/; do
    notes=${notes%/} REPO_KEY=${notes%/beside/*}
    REPO_KEY=${REPO_KEY##*/}
    [ -z "$repo_key" ] || [ "$REPO_KEY" = "$repo_key" ] || continue
    { read -r dir <"$notes/repo.dir"; } 2>/dev/null || continue
    MAIN_DIR=${dir%@*} REPO_STORE=$BOX_HOME/store/$REPO_KEY.git RUNS=$BOX_HOME/runs/$REPO_KEY
    use_tree "${notes##*/}"
    [ "$REPO_DIR" != "$dir" ] || clean_tree
  done
}

# Removes copies of results that are at home by now, see `keep_results.py`, and prints their bytes.
clean_kept() {
  local bytes became
  find_program results.keep_results || return 0
  while read -r _ bytes became; do
    [ "$became" = kept ] || answer copies "$bytes"
  done < <("$BOX_HOME/agent/bin/python" -I -S -B "$program" ${module:+"$module"} clean "$BOX_HOME" ${look:+look} 2>/dev/null)
}

# Removes results that are at home, and downloads, see `disposable.py`.
clean_disposable() {
  local kind name bytes became
  find_program results.disposable || return 0
  while read -r kind name bytes became; do
    answer thing "$kind" "$name" "$became" "$bytes"
  done < <("$BOX_HOME/agent/bin/python" -I -S -B "$program" results.disposable "$BOX_HOME" "${repo_key:--}" ${look:+look} 2>/dev/null)
}

workdir=$WORKDIR
find_home
BOX_HOME=$box_home VENV=.venv
if [ -d "$BOX_HOME/steps" ]; then
  exec 9>>"$BOX_HOME/lock"
  find_unknown
  if [ -n "$look" ] || flock -n 9; then clean_all; clean_kept; clean_disposable; else answer busy yes; fi
fi
answer over yes
