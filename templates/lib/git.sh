# shellcheck shell=bash
# git: how it is run on this box, and how a repository is repaired after a kill or a bad disk.

# Strangers' hooks and filters don't run, git asks nothing, and only these transports are allowed.
box_git() {
  local ssh="ssh -o BatchMode=yes -o ConnectTimeout=20 -o ServerAliveInterval=10 -o StrictHostKeyChecking=yes -o UserKnownHostsFile='$BOX_HOME/known_hosts' -o GlobalKnownHostsFile=/dev/null"
  GIT_SSH_COMMAND=$ssh GIT_TERMINAL_PROMPT=0 GIT_ALLOW_PROTOCOL=file:https:ssh:http:git GIT_LFS_SKIP_SMUDGE=1 GIT_OPTIONAL_LOCKS=0 \
    git -c http.lowSpeedLimit=1 -c http.lowSpeedTime=20 -c core.hooksPath=/dev/null -c checkout.workers=0 -c core.quotePath=true -c init.defaultBranch=main \
    -c gc.auto=0 -c maintenance.auto=false -c core.fsmonitor=false \
    -c safe.directory="$REPO_STORE" -c safe.directory="$REPO_DIR" -c safe.directory="$REPO_DIR/.git" "$@" 3>&- 9>&-
}
work_git() { box_git -C "$REPO_DIR" "$@"; }
store_git() { box_git --git-dir="$REPO_STORE" "$@"; }
# For what lib/place.sh placed. If the store lost commits, the user's git has them.
placed_git() {
  local -x GIT_ALTERNATE_OBJECT_DIRECTORIES=$REPO_DIR/.git/objects
  box_git -C "$REPO_DIR" --git-dir="$PLACED" --work-tree="$REPO_DIR" "$@"
}
# A tree that was taken over has no $PLACED yet: its own git has the answer.
tree_git() { if [ -d "$PLACED" ]; then placed_git "$@"; else work_git "$@"; fi; }

# The token that a door asked for is only in the environment of this call; the helper that git asks does not contain it.
with_token() {
  # A host that trickles is given up; a Mac has no such program.
  # shellcheck disable=SC2317 # box_git calls it
  ! have timeout || git() { timeout 14400 git "$@"; }
  if [ -z "$TOKEN" ]; then
    "$@"
    return
  fi
  local host=${REPO_URL#*://}
  # Another host, to which the repository's may redirect, gets no answer.
  # shellcheck disable=SC2016 # git runs it
  write_if_changed "$PRIVATE/askpass" 700 $'#!/bin/sh\ncase $1 in "Username for \'$SCHEME://$HOST\': ") echo x-access-token ;; "Password for \'$SCHEME://x-access-token@$HOST\': ") echo "$BOXSTRAP_TOKEN" ;; *) exit 1 ;; esac\n'
  BOXSTRAP_TOKEN=$TOKEN SCHEME=${REPO_URL%%://*} HOST=${host%%/*} GIT_ASKPASS=$PRIVATE/askpass "$@"
}

# note_packs DIR LIST: writes each pack's size to LIST, if packs came or went since.
note_packs() {
  local packs
  [ ! "$2" -nt "$1" ] || return 0
  packs=$(cd "$1" && exec stat -c '%s %n' -- *.pack *.idx 2>/dev/null) || :
  write_if_changed "$2" 600 "${packs:+$packs$'\n'}"
}

store_right() { packs_right "$REPO_STORE/packs" "$REPO_STORE/objects/pack"; }
tree_right() { packs_right "$NOTES/repo.packs" "$REPO_DIR/.git/objects/pack"; }

# Notes what identifies this repository, and which folder is its own, as soon as that is known (lib/repository.sh).
note_repository() {
  local key
  case " ${STEPS[*]} " in *' repo '*) ;; *) return 0 ;; esac
  [ -d "$NOTES" ] || mkdir -p "$NOTES"
  [ -z "$REPO_ROOT" ] || write_if_changed "$NOTES/repo.root" 600 "$REPO_ROOT"$'\n'
  is_strange || write_if_changed "$NOTES/repo.dir" 600 "$REPO_DIR"$'\n'
  for key in "$SENT_KEY" "$REPO_USUAL_KEY"; do
    # A key that a repository of this box has as its own stays its own.
    case $key in '' | "$REPO_KEY") continue ;; esac
    if [ -e "$BOX_HOME/steps/$key/setup.sh" ] || [ -e "$BOX_HOME/runs/$key" ]; then continue; fi
    mkdir -p "$BOX_HOME/steps/$key"
    write_if_changed "$BOX_HOME/steps/$key/repo.key" 600 "$REPO_KEY"$'\n'
  done
}

# Whether this repository's folder contains something that boxstrap did not make.
is_strange() {
  { [ -e "$REPO_DIR" ] || [ -L "$REPO_DIR" ]; } &&
    [ ! -e "$NOTES/repo.ok" ] && [ ! -e "$NOTES/repo.placed" ] && [ ! -d "$RUNS" ] &&
    ! placed_by_us "$REPO_DIR" && [ -n "$(ls -A -- "$REPO_DIR" 2>/dev/null)" ]
}

# begins_like VERSION FILE: whether the file in the tree is that version's, or only its first part.
begins_like() {
  local size
  if [ -L "$REPO_DIR/$2" ]; then
    [ "$(readlink -- "$REPO_DIR/$2")" = "$(tree_git cat-file -p "$1:$2" 2>/dev/null)" ]
    return
  fi
  [ -f "$REPO_DIR/$2" ] || return 1
  size=$(stat -c %s -- "$REPO_DIR/$2")
  tree_git cat-file --filters "$1:$2" 2>/dev/null | head -c "$size" | cmp -s - "$REPO_DIR/$2"
}

# Sets EDITED to the files of the snapshot that are other ones here, or of whose removal git was told, and REMOVED to
# those that are just gone: no work is lost by putting them back. 1 if git can't tell. Files that differ only in their
# times are not among them, nor those below a folder that was replaced with a link.
declare -ga EDITED=() REMOVED=()
find_changed() {
  local said=() gone=() last at file
  local -A staged=()
  EDITED=() REMOVED=()
  # The last word shows that git printed everything: bash 5.2's `wait` sometimes loses a substitution's exit code.
  mapfile -d '' -t said < <(tree_git diff --name-status --no-renames --no-ext-diff --ignore-submodules=all -z 2>/dev/null && printf '/\0')
  last=$((${#said[@]} - 1))
  [ "$last" -ge 0 ] && [ "${said[last]}" = / ] || return 1
  for ((at = 0; at < last; at += 2)); do
    file=${said[at + 1]}
    if [ "${said[at]}" != D ] || { [ -d "$REPO_DIR/$file" ] && [ ! -L "$REPO_DIR/$file" ]; }; then
      EDITED+=("$file")
    elif [ ! -e "$REPO_DIR/$file" ] && [ ! -L "$REPO_DIR/$file" ]; then
      gone+=("$file")
    fi
  done
  [ "${#gone[@]}" -gt 0 ] || return 0
  while IFS= read -r -d '' file; do staged[$file]=yes; done \
    < <(work_git diff-index --cached --name-only --diff-filter=D -z HEAD -- 2>/dev/null)
  for file in "${gone[@]}"; do
    if [ -n "${staged[$file]-}" ]; then EDITED+=("$file"); else REMOVED+=("$file"); fi
  done
}

# Prints those of EDITED that were cut within a line, or to nothing, as a bad disk or a lost mount leaves them. Any other
# difference is somebody's edit.
cut_files() {
  local file end
  for file in ${EDITED[@]+"${EDITED[@]}"}; do
    begins_like :0 "$file" || continue
    [ "$(stat -c %s -- "$REPO_DIR/$file")" -lt "$(tree_git cat-file --filters ":0:$file" | wc -c)" ] || continue
    end=$(tail -c 1 -- "$REPO_DIR/$file" | od -An -tx1)
    [ "${end// /}" = 0a ] || printf '%s\n' "$file"
  done
}

# Notes the names of EDITED in NOTES/repo.edited, for the record of a run that begins with them; none, no file.
note_edits() {
  if [ "${#EDITED[@]}" = 0 ]; then
    [ ! -e "$NOTES/repo.edited" ] || rm -f -- "$NOTES/repo.edited"
  else
    write_if_changed "$NOTES/repo.edited" 600 "$(list_edits '')"$'\n'
  fi
}

# list_edits BEFORE: prints a line for each, and no more than anybody reads.
list_edits() {
  local few=("${EDITED[@]:0:200}")
  few=("${few[@]//$'\n'/ }")
  printf '%s\n' "${few[@]/#/$1}"
}

put_back_removed() {
  printf '%s was removed here: restored\n' "${REMOVED[@]}" >&2
  printf '%s\0' "${REMOVED[@]}" | tree_git checkout-index -q -z --stdin || :
}

# Repairs what a kill, a power cut or a bad disk did to the tree's repository; the work in the tree stays as it is.
repair_tree() {
  local file
  free_git_locks "$REPO_STORE" "$REPO_STORE" || :
  free_git_locks "$REPO_DIR/.git" "$REPO_DIR" ||
    fail git-busy "another git is at work in $REPO_DIR: $(git_lock "$REPO_DIR/.git")" "wait for it to end, then set up again"
  drop_broken_refs
  if [ -f "$NOTES/repo.placed" ] && ! { tree_reads && index_right "$REPO_DIR/.git/index"; }; then repair_git; fi
  repair_placed
  [ ! -f "$NOTES/repo.switch" ] || undo_half_switch
  ! find_changed || cut_files | while IFS= read -r file; do
    printf '%s was cut short: restored from the commit\n' "$file" >&2
    tree_git checkout-index -f -- "$file"
    caution cut-files
  done
}

# Removes boxstrap's refs that a power cut left without a commit: git would not overwrite them; placing makes new ones.
drop_broken_refs() {
  local ref id
  for ref in "$REPO_DIR/.git/refs/boxstrap/placed" "$REPO_STORE/refs/boxstrap"/*; do
    [ -f "$ref" ] || continue
    id=''
    read -r id <"$ref" || :
    [[ $id =~ ^[0-9a-f]{40,64}$ ]] || rm -f -- "$ref"
  done
} 2>/dev/null

# Whether git can read both the index and HEAD; what is staged may differ.
tree_reads() {
  tree_right && { work_git diff-index --cached --quiet HEAD -- || [ "$?" = 1 ]; }
} 2>/dev/null

# index_begins FILE: checks only an index's first word, which starts no process.
index_begins() {
  local word=
  { read -r -N 4 word <"$1"; } 2>/dev/null && [ "$word" = DIRC ]
}

# index_right FILE: checks an index's own checksum, since git reads a cut index without an error. Zeros: it has none.
index_right() {
  local sum=sha1sum length=20 end
  [ "${#REPO_COMMIT}" -ne 64 ] || sum=sha256sum length=32
  index_begins "$1" || return
  end=$(tail -c "$length" "$1" | od -An -v -tx1)
  end=${end//[$' \n']/}
  [ -z "${end//0/}" ] || { sum=$(head -c "-$length" "$1" | "$sum") && [ "${sum%% *}" = "$end" ]; }
}

# Repairs the user's git: lost objects are in the store; for the rest, the last success noted what it placed.
repair_git() {
  local git=$REPO_DIR/.git size name head
  printf '%s is damaged\n' "$git" >&2
  [ ! -f "$NOTES/repo.packs" ] || while read -r size name; do
    [ ! -f "$git/objects/pack/$name" ] || [ "$(stat -c %s "$git/objects/pack/$name")" = "$size" ] ||
      rm -f -- "$git/objects/pack/$name"
  done <"$NOTES/repo.packs"
  cp -Rln "$REPO_STORE/objects/." "$git/objects/" 2>/dev/null ||
    cp -Rn "$REPO_STORE/objects/." "$git/objects/" || :
  [[ $(head -c 300 "$git/HEAD" 2>/dev/null) =~ ^(ref:\ refs/heads/.+|[0-9a-f]{40,64})$ ]] ||
    write_file "$git/HEAD" 644 "ref: refs/heads/${REPO_BRANCH:-main}"$'\n'
  if ! work_git rev-parse -q --verify 'HEAD^{tree}' >/dev/null 2>&1; then
    head=$(<"$git/HEAD")
    case $head in 'ref: '*) head=${head#ref: } ;; *) head=HEAD ;; esac
    rm -f -- "${git:?}/$head"
    [ "$head" != HEAD ] || last_head >"$git/HEAD"
    work_git update-ref --no-deref "$head" "$(last_head)"
  fi
  if ! index_right "$git/index" || ! work_git ls-files >/dev/null 2>&1; then
    rm -f -- "$git/index"
    work_git read-tree HEAD
  fi
  work_git fsck --connectivity-only --no-dangling --no-progress HEAD >&2 ||
    fail git-damaged "$git is damaged, and the commit that was sent does not repair it (see above)" \
      "your files there are as they were: move $REPO_DIR away on the box, then set up again"
  caution git-mended
}

# Prints the commit where HEAD was last, including the box's own commits, as far as it can be read.
last_head() {
  local last
  last=$(tail -n 1 "$REPO_DIR/.git/logs/HEAD" 2>/dev/null | cut -d' ' -f2) || :
  if [ -n "$last" ] && work_git cat-file -e "$last^{tree}" 2>/dev/null; then
    printf '%s\n' "$last"
  else
    head -n 1 "$NOTES/repo.placed"
  fi
}

# What was placed is known from the index, else from HEAD, else from the note; without any of these from the user's git.
repair_placed() {
  local head
  [ -d "$PLACED" ] || return 0
  free_git_locks "$PLACED" "$PLACED" || fail git-busy "another git is at work in $REPO_DIR: $(git_lock "$PLACED")"
  if [ ! -s "$PLACED/commondir" ] || ! [[ $(head -c 100 "$PLACED/HEAD" 2>/dev/null) =~ ^[0-9a-f]{40,64}$ ]]; then
    name_store
    tail -n 1 "$NOTES/repo.placed" >"$PLACED/HEAD"
  fi
  if index_right "$PLACED/index"; then
    if placed_git diff-index --cached --quiet HEAD -- 2>/dev/null; then return; fi
    # Also if a switch ended before HEAD was written.
    if placed_git ls-files >/dev/null 2>&1; then
      placed_as_index
      return
    fi
  fi
  rm -f -- "$PLACED/index"
  placed_git read-tree HEAD || rm -rf -- "$PLACED"
}

# A switch that was cut short leaves files of the new snapshot, which git takes for edits. Those that contain no more
# than git itself wrote go back to what the index says; an edit stays.
undo_half_switch() {
  local new commit file switched=()
  [ -d "$PLACED" ] || take_over
  # A note that a power cut left empty was not on the disk yet, so no file was switched.
  read -r new commit <"$NOTES/repo.switch" || { rm -f "$NOTES/repo.switch" && return; }
  mapfile -d '' -t switched < <(placed_git diff-index --cached --name-only --no-renames -z "$new" --)
  for file in ${switched[@]+"${switched[@]}"}; do
    begins_like "$new" "$file" || continue
    rm -f -- "$REPO_DIR/$file"
    # A folder may be where a file was.
    case $file in */*) (cd "$REPO_DIR" && rmdir -p -- "${file%/*}") 2>/dev/null || : ;; esac
  done
  for file in ${switched[@]+"${switched[@]}"}; do
    [ -e "$REPO_DIR/$file" ] || [ -L "$REPO_DIR/$file" ] || printf '%s\0' "$file"
  done | placed_git checkout-index -f -q -z --stdin 2>/dev/null || :
  # The user's index may be ahead of HEAD.
  work_git read-tree -i -m "$commit" HEAD || :
  rm -f "$NOTES/repo.switch"
}

# A snapshot builds on its commit: if the snapshot is whole, so is the commit.
fetch_from_store() {
  [ "$REPO_SNAPSHOT" = "$REPO_COMMIT" ] || store_git update-ref "refs/boxstrap/$REPO_COMMIT" "$REPO_COMMIT"
  # As a pack, which git syncs to the disk.
  local -x GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=fetch.unpackLimit GIT_CONFIG_VALUE_0=1
  work_git fetch -q --no-tags --update-shallow "$REPO_STORE" "refs/boxstrap/$REPO_COMMIT"
  # So that the tree is the same, whichever way the commit came in.
  rm -f -- "$REPO_DIR/.git/FETCH_HEAD"
}
