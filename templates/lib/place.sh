# shellcheck shell=bash
# place: puts a snapshot's files into the tree. The step `repo` and the query `sync` place only with these functions.
#
#   place_snapshot   makes the tree hold REPO_SNAPSHOT's files, with REPO_COMMIT as HEAD; ends with `fail` and a list
#                    if something of the box's own is in the way. The store must have REPO_SNAPSHOT by then.
#   is_placed        whether this snapshot was the last one placed; starts no process
#   $NOTES/repo.switch    a file that exists while files are switched, and after a switch that was cut short
#
# Two git folders track one tree. `$REPO_DIR/.git` is the user's: HEAD is the commit, so that their git shows what the
# snapshot changes. $PLACED is boxstrap's, a worktree of the store: its index is what boxstrap placed, byte for byte. A
# file is overwritten or removed only if it is in that index and its content is unchanged.
# A tree that is adopted has no such folder, nor one whose notes are lost: what its HEAD has counts as placed.
#
# Needs base, errors, git, git_locks, packs, repository and trees (lib/); the names of `settle_names` and the script's REPO_ variables;
# STEP_CODE, the file for `fail`'s code; STEP_LOG, where standard error goes; `emit`, which reports a caution.
# `set -e` must be on, and the setup's lock held. Code that places files outside a setup writes COMMIT, or
# COMMIT+SNAPSHOT if these differ, as the second word into the stamp NOTES/repo.ok.

place_snapshot() {
  raw_store
  [ "$REPO_DIR" = "$MAIN_DIR" ] || nothing_shared_is_tracked
  if is_strange; then
    adopt_tree
    update_in_place
  elif [ -e "$REPO_DIR/.git" ]; then
    repair_tree
    update_in_place
  else
    check_out_whole
  fi
  [ "$REPO_DIR" = "$MAIN_DIR" ] || link_shared
  note_placed
  # Some of them may be as they were sent by now.
  [ "${#EDITED[@]}" = 0 ] || find_changed || :
  note_edits
}

is_placed() { is_line "$PLACED/HEAD" "$REPO_SNAPSHOT"; }

# Files are taken from the store byte for byte, as they were sent, whatever .gitattributes says. Its index is one file.
raw_store() {
  [ ! -f "$REPO_STORE/info/attributes" ] || return 0
  mkdir -p "$REPO_STORE/info"
  printf '[core]\n\tsplitIndex = false\n\tlogAllRefUpdates = false\n' >>"$REPO_STORE/config"
  write_file "$REPO_STORE/info/attributes" 600 $'* -text -ident -filter -working-tree-encoding\n'
}

# Somebody else's tree is taken only if the user says so. Nothing in it is repaired: it may be their work.
adopt_tree() {
  # A file named .git is a worktree's or a submodule's: its repository is elsewhere.
  [ -d "$REPO_DIR/.git" ] || fail tree-in-the-way "$REPO_DIR is there already and is not a git repository" "move it away on the box, or choose another box.workdir"
  [ "${ADOPT:-no}" = yes ] ||
    fail tree-not-ours "boxstrap did not make $REPO_DIR" "--adopt takes it; or move it away, or choose another box.workdir"
  [ -z "$(git_lock "$REPO_DIR/.git")" ] || fail git-busy "another git is at work in $REPO_DIR"
  rm -rf -- "$PLACED"
  : >"$NOTES/repo.adopted"
}

check_out_whole() {
  local tree=$REPO_DIR format=
  local REPO_DIR="$BOX_HOME/trees/boxstrap-$BASHPID"
  [ "${#REPO_COMMIT}" -ne 64 ] || format=--object-format=sha256
  [ "${tree%@*}" = "$WORKDIR/$REPO_NAME" ] || caution own-folder "another repository of this box has $WORKDIR/$REPO_NAME: this one lies in $tree"
  [ ! -e "$tree" ] || rmdir -- "$tree" || fail tree-in-the-way "$tree is in the way"
  mkdir -p "${REPO_DIR%/*}"
  rm -rf -- "$PLACED" "$NOTES/repo.adopted" "$NOTES/repo.switch"
  box_git init -q --template= ${format:+"$format"} "$REPO_DIR"
  # On the same disk objects are linked, not copied; on another one, or with a shallow history, git fetches them.
  cp -Rl "$REPO_STORE/objects/." "$REPO_DIR/.git/objects/" 2>/dev/null || :
  rm -f -- "$BOX_HOME"/trees/boxstrap-"$BASHPID"/.git/objects/pack/*.keep
  { [ ! -f "$REPO_STORE/shallow" ] && work_git cat-file -e "$REPO_COMMIT^{commit}" 2>/dev/null; } ||
    fetch_from_store
  begin_placed
  tree_git checkout -q --detach "$REPO_SNAPSHOT" --
  ! grep -qF 'error: unable to ' "$STEP_LOG" || { rm -rf -- "$REPO_DIR" && not_written; }
  cp -p "$PLACED/index" "$REPO_DIR/.git/index"
  [ "$REPO_SNAPSHOT" = "$REPO_COMMIT" ] || work_git read-tree -i -m "$REPO_COMMIT"
  move_head
  mv -T "$REPO_DIR" "$tree"
  # If another tree is still in there, this fails, as after a kill, and the next setup sweeps the leftovers.
  rmdir -- "${REPO_DIR%/*}"
}

# Makes a worktree's git folder as git expects it, but not in git's own list of worktrees.
begin_placed() {
  mkdir -p "$PLACED"
  name_store
  printf 'ref: refs/heads/none\n' >"$PLACED/HEAD"
}

# Notes where the store is, relative to $PLACED: both are on the same volume, wherever that is mounted.
name_store() { realpath -m --relative-to="$PLACED" -- "$REPO_STORE" >"$PLACED/commondir"; }

# For a tree of a user's, or one whose notes are lost: what HEAD has counts as placed, and what
# differs from it as somebody's edit. The index has the files' times, so that nothing is read or written again.
take_over() {
  local own=$PLACED commit placed
  local PLACED=$own.new.$BASHPID
  begin_placed
  commit=$(work_git rev-parse -q --verify 'HEAD^{commit}') || :
  # There was a $PLACED, and it is lost.
  ! placed=$(lost_snapshot "$commit") || commit=$placed
  [ -n "$commit" ] || { placed_as_index && commit=$(<"$PLACED/HEAD"); }
  cp -p "$REPO_DIR/.git/index" "$PLACED/index" 2>/dev/null || :
  placed_git read-tree --reset "$commit"
  printf '%s\n' "$commit" >"$PLACED/HEAD"
  rm -rf -- "$own"
  mv -T "$PLACED" "$own"
}

# lost_snapshot COMMIT: prints what was placed last with this HEAD, by the note, if its objects are here.
lost_snapshot() {
  local commit snapshot
  { read -r commit && read -r snapshot; } 2>/dev/null <"$NOTES/repo.placed" && [ "$commit" = "$1" ] &&
    placed_git rev-parse -q --verify "$snapshot^{commit}"
}

# The index is what was placed: makes HEAD a commit of it, whether or not its blobs are here.
placed_as_index() {
  local tree commit
  printf 'ref: refs/heads/none\n' >"$PLACED/HEAD"
  tree=$(placed_git write-tree --missing-ok)
  commit=$(placed_git -c user.name=boxstrap -c user.email=boxstrap@localhost commit-tree -m 'What was placed' "$tree")
  write_file "$PLACED/HEAD" 600 "$commit"$'\n'
}

# What was edited, added or committed on the box is never overwritten: git refuses, and the step lists what it found.
update_in_place() {
  local old said refs placed
  # The commits of HEAD, of the branch, and of what was placed last; for one that does not exist git says `missing`.
  mapfile -t refs < <(work_git cat-file --batch-check='%(objectname)' <<<"HEAD^{commit}"$'\n'"refs/heads/$REPO_BRANCH^{commit}"$'\nrefs/boxstrap/placed')
  old=${refs[0]-}
  old=${old##* missing}
  if [ "$old" != "$REPO_COMMIT" ]; then
    fetch_from_store ||
      no_room ||
      fail git-damaged "$REPO_DIR/.git is damaged" "move $REPO_DIR away on the box, then set up again"
    must_know HEAD "$old"
  fi
  must_know "$REPO_BRANCH" "${refs[1]-}"
  [ -d "$PLACED" ] || take_over
  find_changed || :
  [ "${#REMOVED[@]}" = 0 ] || { put_back_removed && caution removed-files; }
  switch_index "$old" -n || box_edits
  printf '%s\n' "$REPO_SNAPSHOT $REPO_COMMIT" >"$NOTES/repo.switch"
  to_disk "$NOTES/repo.switch"
  linked_folders || box_edits
  { read -r placed <"$PLACED/HEAD"; } 2>/dev/null || :
  if ! said=$(switch_files); then
    rm -f "$NOTES/repo.switch"
    printf '%s\n' "$said" >&2
    case $said in *'untracked working tree files would be'*) in_the_way ;; esac
    box_edits
  fi
  case $said in *'error: unable to '*) printf '%s\n' "$said" >&2 && drop_unwritten "$placed" ;; esac
  switch_index "$old"
  move_head
  # Before the note goes: after a power cut, a file's name may be on the disk long before its content.
  to_disk "$PLACED/HEAD" "$PLACED/index"
  [ "$old" = "$REPO_COMMIT" ] ||
    (cd "$REPO_DIR/.git" && to_disk HEAD index refs/boxstrap/placed ${REPO_BRANCH:+"refs/heads/$REPO_BRANCH"})
  rm -f "$NOTES/repo.switch"
}

to_disk() { sync -- "$@" 2>/dev/null || :; }

# git only prints a message about files that it could not write, and takes them for placed. They are removed from what
# was placed, so that they are written once there is room.
drop_unwritten() {
  local file lost=()
  while IFS= read -r -d '' file; do
    if [ -e "$REPO_DIR/$file" ] || [ -L "$REPO_DIR/$file" ]; then
      if [ -L "$REPO_DIR/$file" ] || ! begins_like "$REPO_SNAPSHOT" "$file"; then continue; fi
      [ "$(stat -c %s -- "$REPO_DIR/$file")" -lt "$(placed_git cat-file -s "$REPO_SNAPSHOT:$file")" ] || continue
      rm -f -- "$REPO_DIR/$file"
    fi
    lost+=("$file")
  done < <(placed_git diff-tree -r -z --no-renames --name-only --diff-filter=d "$1" "$REPO_SNAPSHOT" --)
  [ "${#lost[@]}" -eq 0 ] || printf '%s\0' "${lost[@]}" | placed_git update-index -z --force-remove --stdin
  placed_as_index
  rm -f "$NOTES/repo.switch"
  not_written
}

# Ends the step if that is why git failed; else 1.
no_room() { [ "$(classify_error "$STEP_LOG")" = disk-full ] && not_written; }

not_written() {
  fail disk-full "not every file could be written (listed above)" "make room on the box, then run the same command again"
}

# Finds folders that somebody replaced with a link, to a larger disk for example: git would put a folder in its place.
linked_folders() {
  local file folder found=
  while IFS= read -r -d '' file; do
    folder=$file
    while [[ $folder == */* ]]; do
      folder=${folder%/*}
      if [ -L "$REPO_DIR/$folder" ] && ! placed_git rev-parse -q --verify ":$folder" >/dev/null; then found+=$folder$'\n'; fi
    done
  done < <(placed_git diff-tree -r -z --no-renames --name-only HEAD "$REPO_SNAPSHOT" --)
  [ -z "$found" ] || { sort -u <<<"${found%?}" | sed 's/$/ is a link on the box/' >&2 && return 1; }
}

in_the_way() {
  fail untracked-in-the-way "files that git does not track lie where the new commit has files (listed above)" \
    "on the box: move them away; then set up again"
}

box_edits() {
  fail box-edits "files in $REPO_DIR were edited on the box, and what is to be placed changes them (listed above)" \
    "on the box: commit or stash them, or discard them with \`git checkout HEAD -- FILE\`; then set up again"
}

# must_know NAME COMMIT: fails unless it was sent to this box, or the new commit builds on it.
must_know() {
  case $2 in '' | *missing | "$REPO_COMMIT" | "${refs[2]-}") return 0 ;; esac
  ! store_git show-ref -q --verify "refs/boxstrap/$2" || return 0
  if ! work_git merge-base --is-ancestor "$2" "$REPO_COMMIT"; then
    work_git log --oneline -n 10 "$REPO_COMMIT..$2" >&2
    fail box-commits "the box has commits of its own in $REPO_DIR, on $1 (listed above)" \
      "merge them here first, or leave them there on a branch of their own"
  fi
}

# Ignored files are the box's own too, and may be worth more than all others. Prints what git said.
switch_files() {
  local said
  said=$(tree_git checkout -q --no-overwrite-ignore --detach "$REPO_SNAPSHOT" -- 2>&1) ||
    { take_known && said=$(tree_git checkout -q --no-overwrite-ignore --detach "$REPO_SNAPSHOT" -- 2>&1); } ||
    { printf '%s\n' "$said" && return 1; }
  printf '%s\n' "$said"
}

# Files in the way that are as the snapshot has them, or as HEAD does, are known: edits that were brought home and came
# back, or were discarded here; or as a commit of its history has them: edits that were brought home, merged, and
# changed again. They count as placed; 1 if there are none.
take_known() {
  local tree taken=1
  for tree in "$REPO_SNAPSHOT" "$(work_git rev-parse -q --verify HEAD)"; do
    [ -n "$tree" ] || continue
    rm -f -- "$PLACED/index.known"
    changed_in "$tree" | known_git update-index -z --index-info
    known_git update-index -q --refresh >/dev/null || :
    known_git diff-files --name-only -z | known_git update-index -z --force-remove --stdin
    [ -z "$(known_git ls-files)" ] || taken=0
    known_git ls-files -s -z | placed_git update-index -z --index-info
  done
  ! take_merged || taken=0
  rm -f -- "$PLACED/index.known"
  [ "$taken" -ne 0 ] || placed_as_index
  return "$taken"
}
known_git() { GIT_INDEX_FILE=$PLACED/index.known placed_git "$@"; }

# 1 if no edited file is, as it stands here, in a commit that came after what was placed.
take_merged() {
  local file blob mode placed rows=()
  placed=$(work_git rev-parse -q --verify refs/boxstrap/placed) || return
  while IFS= read -r -d '' file; do
    if [ ! -f "$REPO_DIR/$file" ] || [ -L "$REPO_DIR/$file" ]; then continue; fi
    blob=$(placed_git hash-object --no-filters -- "$REPO_DIR/$file")
    # git also finds the commit that replaced what was placed.
    [ "$blob" != "$(placed_git rev-parse -q --verify ":$file")" ] || continue
    [ -n "$(placed_git log -m -1 --format=%H --find-object="$blob" "$REPO_SNAPSHOT" "^$placed" -- "$file" 2>/dev/null)" ] || continue
    mode=100644
    [ ! -x "$REPO_DIR/$file" ] || mode=100755
    rows+=("$mode $blob"$'\t'"$file")
  done < <(placed_git diff-files --name-only -z)
  [ "${#rows[@]}" -gt 0 ] && printf '%s\0' "${rows[@]}" | placed_git update-index -z --index-info
}

# changed_in TREE: prints its entries that differ from what was placed, if the file exists, as update-index reads them.
changed_in() {
  local row file fields
  while IFS= read -r -d '' row && IFS= read -r -d '' file; do
    [ -f "$REPO_DIR/$file" ] || [ -L "$REPO_DIR/$file" ] || continue
    read -ra fields <<<"${row#:}"
    case ${fields[0]} in 000000 | 160000) ;; *) printf '%s %s\t%s\0' "${fields[0]}" "${fields[2]}" "$file" ;; esac
  done < <(placed_git diff-index --cached --no-renames -z "$1" --)
}

# switch_index OLD [-n]: moves the user's index along; what they staged stays. With -n it is only tried.
switch_index() { [ "$1" = "$REPO_COMMIT" ] || work_git read-tree -i -m ${2+"$2"} ${1:+"$1"} "$REPO_COMMIT"; }

# Moves HEAD and its branch, and marks the tree as boxstrap's. `origin` is the real one, without a user in it; the store
# never shows. No remote is ever removed, and in an adopted tree none is changed.
move_head() {
  if [ -n "$REPO_URL" ] && [ ! -e "$NOTES/repo.adopted" ]; then
    [ "$(work_git config --get remote.origin.url)" = "$REPO_URL" ] ||
      work_git remote set-url origin "$REPO_URL" 2>/dev/null || work_git remote add origin "$REPO_URL"
  fi
  local to=$'option no-deref\nupdate HEAD'
  [ -z "$REPO_BRANCH" ] || to="update refs/heads/$REPO_BRANCH"
  # In update_in_place: HEAD, the branch and the mark are there already.
  [ "${refs[*]-}" = "$REPO_COMMIT $REPO_COMMIT $REPO_COMMIT" ] || work_git update-ref --stdin <<<"update refs/boxstrap/placed $REPO_COMMIT
$to $REPO_COMMIT"
  if [ -n "$REPO_BRANCH" ]; then
    is_line "$REPO_DIR/.git/HEAD" "ref: refs/heads/$REPO_BRANCH" || work_git symbolic-ref HEAD "refs/heads/$REPO_BRANCH"
  fi
}

# Puts the tags that describe the commit into the user's git, as far as their commits are here: versions are derived
# from them. One that the box has, and that was not put there, stays.
place_tags() {
  local row id commit name placed now here=() news='' noted=''
  local -A there=() ours=()
  [ "${#REPO_TAGS[@]}" -gt 0 ] || return 0
  [ -z "$TAG_OBJECTS" ] || base64 -d <<<"$TAG_OBJECTS" | work_git unpack-objects -q
  mapfile -t here < <(printf '%s\n' "${REPO_TAGS[@]}" | cut -d' ' -f2 | work_git cat-file --batch-check)
  while read -r id name; do there[$name]=$id; done < <(work_git for-each-ref --format='%(objectname) %(refname:strip=2)' refs/tags)
  [ ! -f "$NOTES/repo.tags" ] || while read -r id name; do ours[$name]=$id; done <"$NOTES/repo.tags"
  for row in "${!REPO_TAGS[@]}"; do
    read -r id commit name <<<"${REPO_TAGS[row]}"
    now=${there[$name]-} placed=${ours[$name]-}
    case ${here[row]-missing} in *missing) continue ;; esac
    if [ -n "$now" ] && [ "$now" != "$id" ] && [ "$now" != "$placed" ]; then continue; fi
    noted+="$id $name"$'\n'
    [ "$now" = "$id" ] || news+="update refs/tags/$name $id"$'\n'
  done
  [ -z "$news" ] || work_git update-ref --stdin <<<"${news%?}" || return 0
  write_if_changed "$NOTES/repo.tags" 600 "$noted"
}

# After success: notes what the checks compare with.
note_placed() {
  note_packs "$REPO_STORE/objects/pack" "$REPO_STORE/packs"
  note_packs "$REPO_DIR/.git/objects/pack" "$NOTES/repo.packs"
  write_if_changed "$NOTES/repo.placed" 600 "$REPO_COMMIT"$'\n'"$REPO_SNAPSHOT"$'\n'
  # The first commit was not known before, and the box fetched it itself.
  [ "$NOTES" = "${NOTES%/beside/*}" ] || return 0
  [ -s "$NOTES/repo.root" ] || root_of "$REPO_STORE" | write_file "$NOTES/repo.root" 600
}
