# shellcheck shell=bash disable=SC2154 # the variables stand in front when it is sent
# back: reports what was made in the repository's folder on this box: its branches, and its edits as one commit. Then
# sends a pack of what the other side wants. Writes only to a folder of its own, which is removed at the end.
# library: repository queries/holds

theirs() { safe_git --git-dir="$repo_dir/.git" "$@"; }
store() { safe_git --git-dir="$box_home/store/$repo_key.git" "$@"; }
ours() { safe_git --git-dir="$work" --work-tree="$repo_dir" "$@"; }

safe_git() {
  GIT_OPTIONAL_LOCKS=0 GIT_TERMINAL_PROMPT=0 GIT_ALLOW_PROTOCOL='' GIT_NO_LAZY_FETCH=1 GIT_NO_REPLACE_OBJECTS=1 \
    git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c core.splitIndex=false -c gc.auto=0 -c maintenance.auto=false \
    -c core.bigFileThreshold=64m -c safe.directory='*' "$@"
}

# Makes a git folder that can read all objects of the box, and writes none but in itself. Files are taken byte for
# byte.
make_work() {
  work=$box_home/steps/$repo_key/back.new.$$
  trap 'rm -rf -- "$work"' EXIT
  trap 'exit 1' HUP INT TERM PIPE
  umask 077
  mkdir -p "$work/objects/info" "$work/refs" "$work/info"
  printf 'ref: refs/heads/none\n' >"$work/HEAD"
  if [ "$object_format" = sha256 ]; then
    printf '[core]\nrepositoryformatversion = 1\n[extensions]\nobjectFormat = sha256\n' >"$work/config"
  else
    printf '[core]\nrepositoryformatversion = 0\n' >"$work/config"
  fi
  printf '%s\n' "$repo_dir/.git/objects" "$box_home/store/$repo_key.git/objects" >"$work/objects/info/alternates"
  printf '* -text -ident -filter -working-tree-encoding\n' >"$work/info/attributes"
  cp "$repo_dir/.git/info/exclude" "$work/info/exclude" 2>/dev/null
  printf '\n__pycache__/\n' >>"$work/info/exclude" # Python makes it beside each file that it imports
  [ -z "$without_results" ] || results_of "$repo_dir" >>"$work/info/exclude"
  cat "$repo_dir/.git/shallow" "$box_home/store/$repo_key.git/shallow" 2>/dev/null | sort -u >"$work/shallow"
  [ -s "$work/shallow" ] || rm "$work/shallow"
}

# Sets base to what setup or sync placed here last; if that note is lost, the tree's own repository has it too.
find_base() {
  { read -r base <"$box_home/steps/$repo_key/placed/HEAD" && ours cat-file -e "$base^{commit}"; } 2>/dev/null ||
    base=$(theirs rev-parse -q --verify 'refs/boxstrap/placed^{commit}')
}

show_refs() {
  head=$(theirs rev-parse -q --verify 'HEAD^{commit}')
  theirs symbolic-ref -q HEAD >/dev/null || printf 'ref\t%s\tHEAD\n' "$head"
  theirs for-each-ref --count=200 --format='ref%09%(objectname)%09%(refname)' refs/heads
  # What was sent, and its parents: the other side may have them.
  store for-each-ref --count=20 --sort=-creatordate --format='sent%09%(objectname)%0asent%09%(parent)' refs/boxstrap
}

# New files are taken unless git ignores them, they are another repository, or they are larger than `most_mib`.
take_new_files() {
  local fresh=() big=() file
  local -A left=()
  mapfile -d '' -t fresh < <(ours ls-files --others --exclude-standard -z && printf '/\0')
  # The last word shows that git printed everything.
  [ "${fresh[*]: -1}" = / ] || return
  fresh=("${fresh[@]::${#fresh[@]}-1}")
  [ "${#fresh[@]}" -gt 0 ] || return 0
  # shellcheck disable=SC2016 # that shell's own
  mapfile -d '' -t big < <(printf './%s\0' "${fresh[@]}" |
    xargs -0 -r sh -c 'find "$@" -maxdepth 0 -type f -size +"$0"k -print0' "$((most_mib * 1024))")
  for file in ${big[@]+"${big[@]}"}; do left[${file#./}]=1; done
  for file in "${fresh[@]}"; do
    if [[ $file = */ || -n ${left[$file]-} ]]; then printf 'left\t%q\n' "$file"; else printf '%s\0' "$file" >&5; fi
  done 5>"$work/new"
  ours update-index --add -z --stdin <"$work/new"
}

# The edits become a commit on top of what was placed, and of the box's own commits. Same edits, same id.
show_edits() {
  local tree parents=()
  [ -n "$base" ] || return 0
  # With its times: files that are as they were placed are not read again.
  cp -p "$box_home/steps/$repo_key/placed/index" "$work/index" 2>/dev/null || ours read-tree "$base"
  ours add -u && take_new_files && tree=$(ours write-tree) || return
  [ "$tree" != "$(ours rev-parse "$base^{tree}")" ] || return 0
  [ -z "$head" ] || ours merge-base --is-ancestor "$head" "$base" || parents=(-p "$head")
  # All of it is in the box's own commits.
  [ "${#parents[@]}" -eq 0 ] || [ "$tree" != "$(ours rev-parse "$head^{tree}")" ] || return 0
  when="$(ours log -1 --format=%ct "$base") +0000"
  printf 'edits\t%s\n' "$(
    GIT_AUTHOR_NAME=boxstrap GIT_AUTHOR_EMAIL='' GIT_AUTHOR_DATE=$when GIT_COMMITTER_NAME=boxstrap GIT_COMMITTER_EMAIL='' \
      GIT_COMMITTER_DATE=$when ours commit-tree -p "$base" ${parents[@]+"${parents[@]}"} -m 'Edits made on the box' "$tree"
  )"
}

send_pack() {
  local line
  : >"$work/wanted"
  while IFS= read -r line && [ "$line" != . ]; do printf '%s\n' "$line" >>"$work/wanted"; done
  [ "$line" = . ] && [ -s "$work/wanted" ] || return 0
  ours pack-objects --revs --thin --stdout --delta-base-offset -q <"$work/wanted"
}

find_home
find_repository "$box_home" "$repo_key" "$repo_root" ""
if [ ! -d "$repo_dir/.git" ]; then
  printf 'none\t%s\n' "$repo_dir"
  exit 0
fi
make_work
cd "$repo_dir" || exit
find_base
printf 'dir\t%s\nbase\t%s\n' "$repo_dir" "$base"
show_refs
show_edits || printf 'unread\t%s\n' "$repo_dir"
printf 'ready\t\n'
send_pack
