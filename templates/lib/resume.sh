# shellcheck shell=bash disable=SC2034,SC2153 # RUN_DIR is read elsewhere; PLACED is set elsewhere
# resume: a run that ended early continues as a new one, in the same tree, with the command in its `resume`.

# why_not_resumed RUN: alive, over, nodes (it is one of several), unknown (how), held (its tree), changed (its tree);
# nothing if it can continue.
why_not_resumed() {
  local dir placed='' made=''
  case $(run_state "$1") in
    running | queued | waiting) printf 'alive\n' && return ;;
    'finished 0') is_interrupted "$1" || { printf 'over\n' && return; } ;;
  esac
  [ ! -d "$1/nodes" ] || { printf 'nodes\n' && return; }
  [ -f "$1/resume" ] || { printf 'unknown\n' && return; }
  dir=$(<"$1/dir")
  # Its environment may be in use: it stays as it is.
  ! alive_in "$BOX_HOME" "$REPO_KEY" "$dir" >/dev/null || { printf 'held\n' && return; }
  case $dir in
    "$MAIN_DIR") use_tree 1 ;;
    "$MAIN_DIR"@*) use_tree "${dir##*@}" ;;
  esac
  read -r placed <"$PLACED/HEAD" && { read -r made <"$1/snapshot" || read -r made <"$1/commit"; } || return 0
  [ "$placed" = "$made" ] || printf 'changed\n'
} 2>/dev/null

# resume_run RUN [ID]: starts the new run, and sets RUN_DIR to it.
resume_run() {
  local file name=${1##*/} tmp=${1%/*}/.new.$BASHPID number=1
  while [ -e "${1%/*}/${name%-*}-$number" ]; do number=$((number + 1)); done
  RUN_DIR=${1%/*}/${name%-*}-$number
  rm -rf -- "$tmp"
  mkdir "$tmp"
  for file in work commit snapshot tree edited data dir venv gpus variables grace log_max metrics resume on_notice results results_to notify made_of; do
    [ ! -f "$1/$file" ] || cp "$1/$file" "$tmp/$file"
  done
  cp "$1/resume" "$tmp/command"
  printf '%s\n' "${name%-*}" >"$tmp/session"
  printf '%s\n' "${1#"$BOX_HOME/runs/"}" >"$tmp/resumes"
  [ -z "${2-}" ] || printf '%s\n' "$2" >"$tmp/id"
  date +%s >"$tmp/started"
  mv -T "$tmp" "$RUN_DIR"
  start_run "$RUN_DIR"
}

# died_runs: prints the last started run of each tree, if it died or was interrupted and can continue.
died_runs() {
  local dir tree
  local -A last=()
  for dir in "$RUNS"/*/; do
    dir=${dir%/}
    if [ ! -f "$dir/pid" ] || ! read -r tree <"$dir/dir"; then continue; fi
    if is_newer "$dir" "${last[$tree]-}"; then last[$tree]=$dir; fi
  done
  for dir in ${last[@]+"${last[@]}"}; do
    if { [ "$(run_state "$dir")" = died ] || is_interrupted "$dir"; } && [ -z "$(why_not_resumed "$dir")" ]; then printf '%s\n' "$dir"; fi
  done
}

# Resumes all runs that died with the box: they ran in parallel before.
resume_died() {
  local dir dirs
  mapfile -t dirs < <(died_runs)
  for dir in ${dirs[@]+"${dirs[@]}"}; do resume_run "$dir"; done
}
