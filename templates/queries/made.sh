# shellcheck shell=bash disable=SC2034,SC2153,SC2154 # read by the library; the variables stand in front when it is sent
# made: what was made in each tree of this box: edits, new files, and refs with commits that were never sent to it.
# Changes nothing. Results of runs are left out: the caller checks each of them. For each tree it prints lines of what
# the tree holds, then the tree; for each run that has started, where its results are.
# library: base repository git trees queries/holds

# Prints commits and names of its branches, tags and stashes.
all_refs() {
  local peeled='%(if)%(*objectname)%(then)%(*objectname)%(else)%(objectname)%(end)' refs head
  ! head=$(work_git rev-parse -q --verify 'HEAD^{commit}') || printf '%s HEAD\n' "$head"
  refs=$(work_git for-each-ref --format="$peeled %(refname)") || return
  printf '%s\n' "$refs"
  # Only the newest stash is a ref; the ones below it are in its reflog.
  [[ $refs != *' refs/stash'* ]] || work_git reflog show --format='%H refs/stash' refs/stash 2>/dev/null || :
}

# Whether git has no other working tree: files there would not be checked.
is_only_tree() {
  { [ -d "$REPO_DIR/.git" ] && [ ! -e "$REPO_DIR/.git/worktrees" ]; } ||
    [ "$(work_git worktree list --porcelain | grep -c '^worktree ')" = 1 ]
}

# never_sent COMMIT...: prints a commit that these lead to and that never came to this box; 1 if git can't tell.
never_sent() { GIT_ALTERNATE_OBJECT_DIRECTORIES=$REPO_DIR/.git/objects store_git rev-list -n 1 "$@" --not --all; }

# Prints those that lead to commits which were never sent to this box; 1 if git can't tell.
own_refs() {
  local refs commit name new commits=()
  refs=$(all_refs) && is_only_tree || return
  refs=$(printf '%s\n' "$refs" | grep -av ' refs/remotes/' | sort -u)
  while read -r commit name; do [ -z "$name" ] || commits+=("$commit"); done <<<"$refs"
  # Usually none does, and one call of git shows it.
  [ "${#commits[@]}" -eq 0 ] || new=$(never_sent "${commits[@]}") || return
  if [ -n "${new-}" ]; then
    while read -r commit name; do
      new=$(never_sent "$commit") || return
      [ -z "$new" ] || answer ref "$commit" "$name"
    done <<<"$refs"
  fi
  own_repositories
}

# Prints what somebody made in its files; 1 if git can't tell.
own_files() {
  local edits staged files
  [ -f "$PLACED/index" ] || return
  mapfile -d '' -t edits < <(placed_git diff --name-only -z --no-ext-diff --ignore-submodules=all --diff-filter=d && printf '/\0')
  # Changes in the index alone: one that the file also has is an edit, or was placed.
  mapfile -d '' -t staged < <(set -o pipefail && {
    work_git diff --cached --name-only -z --no-ext-diff --ignore-submodules=all --diff-filter=d &&
      work_git diff --name-only -z --no-ext-diff --ignore-submodules=all
  } | LC_ALL=C sort -z | uniq -zd && printf '/\0')
  mapfile -d '' -t files < <(unignored_new_files && printf '/\0')
  holds_if_whole edits "${edits[@]}" && holds_if_whole staged "${staged[@]}" && holds_if_whole files "${files[@]}"
}

# Prints files that were not placed, and that git doesn't ignore, without what Python makes beside each file that it imports.
unignored_new_files() {
  local left_out=(--exclude=__pycache__/ --exclude='*.egg-info/') line
  while IFS= read -r line; do left_out+=("--exclude=$line"); done < <(results_of "$REPO_DIR")
  [ ! -f "$REPO_DIR/.git/info/exclude" ] || left_out+=("--exclude-from=$REPO_DIR/.git/info/exclude")
  placed_git ls-files --others -z --exclude-per-directory=.gitignore "${left_out[@]}"
}

# Prints what was made among the files that git ignores, and is no result; 1 if git can't tell.
own_ignored() {
  local program=$BOX_HOME/box/current/onbox python=$BOX_HOME/agent/bin/python
  # Else no setup came so far that anything could run.
  [ -f "$program/results/at_risk.py" ] && [ -x "$python" ] || return 0
  "$python" -I -S -B "$program/__main__.py" results.at_risk "$BOX_HOME" "$BOX_HOME/steps/$REPO_KEY" "$PLACED" "$REPO_DIR"
}

look_at() {
  local said
  [ -e "$REPO_DIR" ] || [ -L "$REPO_DIR" ] || return 0
  if said=$(own_refs); then [ -z "$said" ] || printf '%s\n' "$said"; else holds unread 1 refs; fi
  if said=$(own_files && own_ignored); then [ -z "$said" ] || printf '%s\n' "$said"; else holds unread 1 files; fi
  answer tree "$REPO_KEY" "${REPO_DIR##*/}" "$TREE_NUMBER" "$(cat "$BOX_HOME/steps/$REPO_KEY/repo.root" 2>/dev/null)"
}

look_at_all() {
  local key notes
  for key in "$BOX_HOME"/steps/*/; do
    REPO_KEY=${key%/} REPO_KEY=${REPO_KEY##*/}
    if [ -e "$key/repo.key" ] || ! has_folder "$BOX_HOME" "$REPO_KEY"; then continue; fi
    MAIN_DIR=$_folder REPO_STORE=$BOX_HOME/store/$REPO_KEY.git RUNS=$BOX_HOME/runs/$REPO_KEY
    use_tree 1
    look_at
    for notes in "$BOX_HOME/steps/$REPO_KEY"/beside/*/; do
      [ -d "$notes" ] || continue
      notes=${notes%/}
      use_tree "${notes##*/}"
      look_at
    done
  done
}

# Prints for each started run a digest of where its results are: equal digests, one place.
answer_results() {
  local run where
  for run in "$BOX_HOME"/runs/*/*/; do
    run=${run%/} where=
    [ -f "$run/pid" ] || continue
    { read -r where <"$run/dir"; } 2>/dev/null || :
    answer results "$(stat -c %Y "$run/pid")" "$(printf '%s\0' "$where" | cat - "$run/results" 2>/dev/null | sha256sum | cut -c -64)" \
      "${run#"$BOX_HOME/runs/"}"
  done
}

# git's variables, for example from a run's environment, would lead to another repository.
unset "${!GIT_@}"
workdir=$WORKDIR
find_home
BOX_HOME=$box_home VENV=.venv
if [ -d "$BOX_HOME" ]; then
  answer home "$BOX_HOME"
  look_at_all
  answer_results
fi
answer over yes
