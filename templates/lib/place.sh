# shellcheck shell=bash
# place: a snapshot's files in the tree. The step `repo` and the query `sync` place with these functions alone.
#
#   place_snapshot   the tree holds REPO_SNAPSHOT's files, and its HEAD is REPO_COMMIT; ends with `fail` and a list
#                    where something of the box's own is in the way. The store must have REPO_SNAPSHOT by then.
#   is_placed        whether the snapshot placed last is this one: no process is started
#   $NOTES/repo.switch    a file that is there while files are switched, and after a switch that was cut short
#
# Two git folders look at one tree. `$REPO_DIR/.git` is the person's: HEAD is the commit, so that their git shows what
# the snapshot changes. $PLACED is ours, a worktree of the store: its index is what boxstrap placed, byte for byte. A
# file is written over or goes only if it is in that index and its content is unchanged. The shorter editions make none
# beside a tree, and ask the person's git; the full script takes such a tree over.
#
# Needs base, git, git_locks, packs and repository (lib/); the names of `settle_names` and the script's REPO_ variables;
# STEP_CODE, the file that takes `fail`'s code; STEP_LOG, where standard error goes; `emit`, which tells a caution.
# `set -e` must be on, and the setup's lock held. Who places outside of a setup writes COMMIT, or COMMIT+SNAPSHOT where
# these differ, as second word into the stamp NOTES/repo.ok.

place_snapshot() {
  raw_store # full
  [ "$REPO_DIR" = "$MAIN_DIR" ] || nothing_shared_is_tracked # full
  if is_strange; then
    adopt_tree
    update_in_place
  elif [ -e "$REPO_DIR/.git" ]; then
    mend_tree # full
    update_in_place
  else
    check_out_whole
  fi
  [ "$REPO_DIR" = "$MAIN_DIR" ] || link_shared # full
  note_placed
}

# An earlier version's tree has no folder of ours beside it: there HEAD tells what was placed.
is_placed() {
  local placed=$REPO_COMMIT
  [ ! -d "$PLACED" ] || { read -r placed <"$PLACED/HEAD"; } 2>/dev/null || return
  [ "$placed" = "$REPO_SNAPSHOT" ]
}

# Files are taken from the store as they are, whatever .gitattributes says: they travelled so. Its index is one file.
raw_store() {
  [ ! -f "$REPO_STORE/info/attributes" ] || return 0
  mkdir -p "$REPO_STORE/info"
  printf '[core]\n\tsplitIndex = false\n\tlogAllRefUpdates = false\n' >>"$REPO_STORE/config"
  write_file "$REPO_STORE/info/attributes" 600 $'* -text -ident -filter -working-tree-encoding\n'
}

# Somebody else's tree is taken only where they say so. Nothing in it is repaired: that may be their work.
adopt_tree() {
  # A file named .git is a worktree's or a submodule's: its repository lies elsewhere.
  [ -d "$REPO_DIR/.git" ] || fail tree-in-the-way "$REPO_DIR is there already and is not a git repository" "move it away on the box, or choose another box.workdir" # full
  [ "${ADOPT:-no}" = yes ] || # full
    fail tree-not-ours "boxstrap did not make $REPO_DIR" "--adopt takes it; or move it away, or choose another box.workdir"
  [ -z "$(git_lock "$REPO_DIR/.git")" ] || fail git-busy "another git is at work in $REPO_DIR" # full
  rm -rf -- "$PLACED" # full
  : >"$NOTES/repo.adopted" # full
}

check_out_whole() {
  local tree=$REPO_DIR format=
  local REPO_DIR="$BOX_HOME/trees/boxstrap-$BASHPID"
  [ "${#REPO_COMMIT}" -ne 64 ] || format=--object-format=sha256 # full
  [ "${tree%@*}" = "$WORKDIR/$REPO_NAME" ] || caution own-folder "another repository of this box has $WORKDIR/$REPO_NAME: this one lies in $tree" # full
  [ ! -e "$tree" ] || rmdir -- "$tree" || fail tree-in-the-way "$tree is in the way"
  mkdir -p "${REPO_DIR%/*}"
  rm -rf -- "$PLACED" "$NOTES/repo.adopted" "$NOTES/repo.switch"
  box_git init -q --template= ${format:+"$format"} "$REPO_DIR"
  # On the same disk the objects are linked, not copied; else, or of a shallow history, git fetches.
  cp -Rl "$REPO_STORE/objects/." "$REPO_DIR/.git/objects/" 2>/dev/null || : # full
  rm -f -- "$BOX_HOME"/trees/boxstrap-"$BASHPID"/.git/objects/pack/*.keep # full
  { [ ! -f "$REPO_STORE/shallow" ] && work_git cat-file -e "$REPO_COMMIT^{commit}" 2>/dev/null; } || # full
    fetch_from_store
  begin_placed # full
  tree_git checkout -q --detach "$REPO_SNAPSHOT" --
  ! grep -qF 'error: unable to ' "$STEP_LOG" || { rm -rf -- "$REPO_DIR" && not_written; } # full
  cp -p "$PLACED/index" "$REPO_DIR/.git/index" # full
  [ "$REPO_SNAPSHOT" = "$REPO_COMMIT" ] || work_git read-tree -i -m "$REPO_COMMIT" # full
  move_head
  mv -T "$REPO_DIR" "$tree"
  # Where others' are beside it, it ends as after a kill, whose leavings the next setup sweeps.
  rmdir -- "${REPO_DIR%/*}"
}

# A worktree's git folder as git knows it, outside of the list that git keeps of its own.
begin_placed() {
  mkdir -p "$PLACED"
  name_store
  printf 'ref: refs/heads/none\n' >"$PLACED/HEAD"
}

# Where the store lies from there: both lie on the same volume, wherever that is.
name_store() { realpath -m --relative-to="$PLACED" -- "$REPO_STORE" >"$PLACED/commondir"; }

# A tree of an earlier version, of the minimal edition or of a person: what stands in it is HEAD's, and what differs
# from that is somebody's. The index has the files' times, so that nothing is read or written again.
take_over() {
  local own=$PLACED commit placed
  local PLACED=$own.new.$BASHPID
  begin_placed
  commit=$(work_git rev-parse -q --verify 'HEAD^{commit}') || :
  # Ours was there, and is lost.
  ! placed=$(lost_snapshot "$commit") || commit=$placed
  [ -n "$commit" ] || { placed_as_index && commit=$(<"$PLACED/HEAD"); }
  cp -p "$REPO_DIR/.git/index" "$PLACED/index" 2>/dev/null || :
  placed_git read-tree --reset "$commit"
  printf '%s\n' "$commit" >"$PLACED/HEAD"
  rm -rf -- "$own"
  mv -T "$PLACED" "$own"
}

# lost_snapshot COMMIT: what was placed last with this HEAD, by our note, where its objects are here.
lost_snapshot() {
  local commit snapshot
  { read -r commit && read -r snapshot; } 2>/dev/null <"$NOTES/repo.placed" && [ "$commit" = "$1" ] &&
    placed_git rev-parse -q --verify "$snapshot^{commit}"
}

# The index is what was placed: HEAD becomes a commit of it, whether or not its blobs are here.
placed_as_index() {
  local tree commit
  printf 'ref: refs/heads/none\n' >"$PLACED/HEAD"
  tree=$(placed_git write-tree --missing-ok)
  commit=$(placed_git -c user.name=boxstrap -c user.email=boxstrap@localhost commit-tree -m 'What was placed' "$tree")
  write_file "$PLACED/HEAD" 600 "$commit"$'\n'
}

# What was edited, added or committed on the box is never overwritten: git refuses, and we say what it found.
update_in_place() {
  local old said refs
  local placed # full
  # Where HEAD stands, the branch, and what was placed last; of what isn't there that it is missing.
  mapfile -t refs < <(work_git cat-file --batch-check='%(objectname)' <<<"HEAD^{commit}"$'\n'"refs/heads/$REPO_BRANCH^{commit}"$'\nrefs/boxstrap/placed')
  old=${refs[0]-}
  old=${old##* missing}
  if [ "$old" != "$REPO_COMMIT" ]; then
    fetch_from_store ||
      no_room || # full
      fail git-damaged "$REPO_DIR/.git is damaged" "move $REPO_DIR away on the box, then set up again"
    must_know HEAD "$old"
  fi
  must_know "$REPO_BRANCH" "${refs[1]-}"
  [ -d "$PLACED" ] || take_over # full
  switch_index "$old" -n || box_edits # full
  write_file "$NOTES/repo.switch" 600 "$REPO_SNAPSHOT $REPO_COMMIT"$'\n'
  to_disk "$NOTES/repo.switch" # full
  linked_folders || box_edits # full
  { read -r placed <"$PLACED/HEAD"; } 2>/dev/null || : # full
  if ! said=$(switch_files); then
    rm -f "$NOTES/repo.switch"
    printf '%s\n' "$said" >&2
    case $said in *'untracked working tree files would be'*) in_the_way ;; esac # full
    box_edits
  fi
  case $said in *'error: unable to '*) printf '%s\n' "$said" >&2 && drop_unwritten "$placed" ;; esac # full
  switch_index "$old"
  move_head
  # Before the note goes: a power cut takes back what is not on the disk, and its name may be there long before.
  to_disk "$PLACED/HEAD" "$PLACED/index" # full
  [ "$old" = "$REPO_COMMIT" ] || # full
    (cd "$REPO_DIR/.git" && to_disk HEAD index refs/boxstrap/placed ${REPO_BRANCH:+"refs/heads/$REPO_BRANCH"}) # full
  rm -f "$NOTES/repo.switch"
}

to_disk() { sync -- "$@" 2>/dev/null || :; }

# Of files that it could not write git tells in words alone, and takes them for placed. They are taken out of what was
# placed, so that they are written once there is room.
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

# Ends the step where that is why git failed; else 1.
no_room() { [ "$(classify_error "$STEP_LOG")" = disk-full ] && not_written; }

not_written() {
  fail disk-full "not every file could be written (listed above)" "make room on the box, then run the same command again"
}

# A folder that somebody made a link on the box, to a larger disk say: git would put a folder in its place.
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
  fail box-edits "files in $REPO_DIR were edited on the box, and the new commit changes them (listed above)" \
    "on the box: commit or stash them, or discard them with \`git checkout HEAD -- FILE\`; then set up again"
}

# must_know NAME COMMIT: it holds nothing but what was sent to this box, or what the new commit builds on.
must_know() {
  case $2 in '' | *missing | "$REPO_COMMIT" | "${refs[2]-}") return 0 ;; esac
  ! store_git show-ref -q --verify "refs/boxstrap/$2" || return 0
  if ! work_git merge-base --is-ancestor "$2" "$REPO_COMMIT"; then
    work_git log --oneline -n 10 "$REPO_COMMIT..$2" >&2
    fail box-commits "the box has commits of its own in $REPO_DIR, on $1 (listed above)" \
      "fetch them from the box, or leave them there on a branch of their own"
  fi
}

# Ignored files too are the box's own, and may be worth more than all others. Prints what git said.
switch_files() {
  local said
  said=$(tree_git checkout -q --no-overwrite-ignore --detach "$REPO_SNAPSHOT" -- 2>&1) ||
    { take_known && said=$(tree_git checkout -q --no-overwrite-ignore --detach "$REPO_SNAPSHOT" -- 2>&1); } || # full
    { printf '%s\n' "$said" && return 1; }
  printf '%s\n' "$said" # full
}

# Of the files in the way, those that stand here as the snapshot has them, or as HEAD does, which is known: edits that
# went home and came back, or were discarded here. They are taken for placed; 1 where there are none.
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
  rm -f -- "$PLACED/index.known"
  [ "$taken" -ne 0 ] || placed_as_index
  return "$taken"
}
known_git() { GIT_INDEX_FILE=$PLACED/index.known placed_git "$@"; }

# changed_in TREE: its entries that differ from what was placed, of files that are there, as update-index reads them.
changed_in() {
  local row file fields
  while IFS= read -r -d '' row && IFS= read -r -d '' file; do
    [ -f "$REPO_DIR/$file" ] || [ -L "$REPO_DIR/$file" ] || continue
    read -ra fields <<<"${row#:}"
    case ${fields[0]} in 000000 | 160000) ;; *) printf '%s %s\t%s\0' "${fields[0]}" "${fields[2]}" "$file" ;; esac
  done < <(placed_git diff-index --cached --no-renames -z "$1" --)
}

# switch_index OLD [-n]: the person's index follows; what they staged stays. With -n it is only tried.
switch_index() { [ "$1" = "$REPO_COMMIT" ] || work_git read-tree -i -m ${2+"$2"} ${1:+"$1"} "$REPO_COMMIT"; }

# HEAD, its branch, and what marks a tree of ours. `origin` is the real one, without a user in it; the store never
# shows. No remote is ever removed, and in an adopted tree none is changed.
move_head() {
  if [ -n "$REPO_URL" ] && [ ! -e "$NOTES/repo.adopted" ]; then
    [ "$(work_git config --get remote.origin.url)" = "$REPO_URL" ] || # full
      work_git remote set-url origin "$REPO_URL" 2>/dev/null || work_git remote add origin "$REPO_URL"
  fi
  local to=$'option no-deref\nupdate HEAD'
  [ -z "$REPO_BRANCH" ] || to="update refs/heads/$REPO_BRANCH"
  work_git update-ref --stdin <<<"update refs/boxstrap/placed $REPO_COMMIT
$to $REPO_COMMIT"
  if [ -n "$REPO_BRANCH" ]; then
    is_line "$REPO_DIR/.git/HEAD" "ref: refs/heads/$REPO_BRANCH" || # full
      work_git symbolic-ref HEAD "refs/heads/$REPO_BRANCH"
  fi
}

# After success: what the checks compare with.
note_placed() {
  note_packs "$REPO_STORE/objects/pack" "$REPO_STORE/packs" # full
  note_packs "$REPO_DIR/.git/objects/pack" "$NOTES/repo.packs" # full
  write_if_changed "$NOTES/repo.placed" 600 "$REPO_COMMIT"$'\n'"$REPO_SNAPSHOT"$'\n'
  # Nobody here knew it, and the box fetched it by itself.
  [ "$NOTES" = "${NOTES%/beside/*}" ] || return 0 # full
  [ -s "$NOTES/repo.root" ] || root_of "$REPO_STORE" | write_file "$NOTES/repo.root" 600
}
