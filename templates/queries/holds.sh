# shellcheck shell=bash disable=SC2154 # set by home.sh
# holds: how a query reports what a tree holds: `holds KIND COUNT NAME...`.

FEW=5

answer() {
  local IFS=$'\t'
  printf '%s\n' "$*"
}

# holds KIND COUNT NAME...: prints no more names than a person reads, and none that could end a line.
holds() {
  local names=() name
  for name in "${@:3:FEW}"; do
    printf -v name %q "$name"
    names+=("$name")
  done
  answer holds "$1" "$2" ${names[@]+"${names[@]}"}
}

# holds_if_whole KIND NAME... /: the last word shows that git printed everything; 1 without it.
holds_if_whole() {
  [ "$#" -gt 1 ] && [ "${!#}" = / ] || return
  [ "$#" -eq 2 ] || holds "$1" "$(($# - 2))" "${@:2:$#-2}"
}

# Submodules travel as folders of files. One that became a repository on the box has commits that were never sent.
own_repositories() {
  local entry entries=() found=()
  mapfile -d '' -t entries < <(work_git ls-files -z --stage && printf '/\0')
  for entry in "${entries[@]}"; do
    case $entry in
      160000*) [ ! -e "$REPO_DIR/${entry#*$'\t'}/.git" ] || found+=("${entry#*$'\t'}") ;;
      /) found+=(/) ;;
    esac
  done
  holds_if_whole repositories ${found[@]+"${found[@]}"}
}

# results_of FOLDER: prints the results of runs that started in this tree, as lines of .gitignore.
results_of() {
  local run where
  for run in "$box_home"/runs/*/*/; do
    where=
    { read -r where <"$run/dir"; } 2>/dev/null || :
    if [ "$where" != "$1" ] || [ ! -f "$run/pid" ] || [ ! -f "$run/results" ]; then continue; fi
    sed -e 's,/*$,,' -e 's/[][*?\\]/\\&/g' -e 's,^,/,' "$run/results"
  done
}
