# shellcheck shell=sh disable=SC2154,SC3013 # the variables stand in front when it is sent; every sh there is knows -nt
# probe: who is this box, and what does it have already? Looks only; changes nothing.
# library: packs repository

fact() { printf '%s\t%s\n' "$1" "$2"; }

# What bash can tell, in one process that then becomes `uname`; an old bash stops at what it does not understand. Of
# the provider's variables it prints the names, never the values.
describe() {
  # shellcheck disable=SC2016,SC2086 # bash reads it; names are words
  bash --norc -c '
    printf "bash\t%s\n" "$BASH_VERSION"
    all=()
    if [ "$#" -gt 0 ]; then
      mapfile -t all </etc/environment
      mapfile -t -O "${#all[@]}" all </etc/rp_environment
      mapfile -t -O "${#all[@]}" -d "" all </proc/1/environ
    fi
    printf -v line "\n"
    printf -v said "\n%s" "${all[@]#export }"
    for name; do
      if [[ -v $name || $said == *"$line$name="* ]]; then printf "env\t%s\n" "$name"; fi
    done
    printf -v now "%(%s)T" -1 && printf "time\t%s\nsystem\t" "$now" && exec uname -sm
  ' probe $hint_names 2>/dev/null || { echo && fact system "$(uname -sm)"; }
  fact home "$HOME"
  fact boxhome "$box_home"
  ! command -v tmux >/dev/null 2>&1 || fact tmux yes
  for name in $hint_files; do [ ! -e "$name" ] || fact file "$name"; done
}

show_commits() {
  store=$box_home/store/$repo_key.git
  [ -d "$store" ] && command -v git >/dev/null 2>&1 && packs_right "$store/packs" "$store/objects/pack" || return 0
  # What was placed last comes first: the next snapshot resembles it most, and a snapshot's date does not show its age.
  { read -r placed <"$box_home/steps/$repo_key/placed/HEAD" && [ -f "$store/refs/boxstrap/$placed" ] && fact have "$placed"; } 2>/dev/null || :
  git --git-dir="$store" -c safe.directory='*' \
    for-each-ref --count=20 --sort=-creatordate --format='have	%(objectname)' refs/boxstrap
}

# Prints names and ids of the secrets that the box keeps, no value. A value may have several lines.
show_secrets() {
  tr '\0\n' '\n\1' <"$box_home/secrets" | cut -d= -f1 | sed 's/^/secret	/'
  [ ! -f "$box_home/secrets.ids" ] || sed 's/^/secretid	/' "$box_home/secrets.ids"
  # The box can redact on its own; a live run may have been started with other secrets than these.
  [ ! -x "$box_home/agent/bin/python" ] || fact redacts yes
  for run in "$box_home"/runs/*/*/pid; do
    if [ -f "$run" ] && ! [ "$run" -nt "$box_home/secrets" ] && in_state "${run%/*}" running; then
      fact earlier yes
      return
    fi
  done
}

# What the monitor says about the lease, and whether it is kept running.
show_lease() {
  [ -f "$box_home/lease.json" ] || return 0
  keeper='' state=
  { read -r keeper <"$box_home/lease.pid"; } 2>/dev/null
  { read -r state <"$box_home/lease.state"; } 2>/dev/null
  if alive "$keeper"; then fact lease "kept	$state"; else fact lease "lost	$state"; fi
}

# The setup at work, or else the last one.
show_setups() {
  [ -s "$box_home/lock" ] || return 0
  what=
  { read -r holder && read -r script && read -r setup && read -r what; } <"$box_home/lock"
  if alive "$holder"; then
    fact working "$setup	$script"
    fact holder "$setup	$(stat -c %Y "$box_home/lock")	$what"
  fi
  if read -r last <"$box_home/setups/$setup/status.json"; then fact last "$last"; fi
}

show_runs() {
  for run in "$box_home"/runs/*/*/; do
    run=${run%/}
    [ -f "$run/command" ] || continue
    find_state "$run"
    state=$_state key=${run%/*}
    # shellcheck disable=SC2229 # into the variable of that name
    for name in started commit work session command; do read -r "$name" <"$run/$name"; done
    ended='' snapshot=
    [ ! -f "$run/snapshot" ] || read -r snapshot <"$run/snapshot"
    [ ! -f "$run/ended" ] || [ ! -f "$run/exit" ] || read -r ended <"$run/ended"
    [ ! -f "$run/left" ] || ended="$ended left $(left_of "$run")"
    case $state in
      queued) ended=$(queue_of "$run") ;;
      died) [ ! -f "$run/resume" ] || ended=resume ;;
    esac
    fact run "${key##*/}	${run##*/}	$state${ended:+ $ended}	$started	$commit${snapshot:+ $snapshot}	$work	$session	$command"
    show_notes "$run" "$state"
  done
  # When each was last written, its size, and that time with a fraction: one process for all.
  (cd "$box_home/runs" && stat -c 'stat	%n	%Y	%s	%y' -- */*/started */*/log */*/pid */*/exit) 2>/dev/null
}

# show_notes RUN STATE: what is noted with it if it was given GPUs, was killed, or has a log with times; the tree, if
# that is no main one.
show_notes() {
  path=${1%/*} path=${path##*/}/${1##*/}
  for name in gpus killed times uploaded interrupted nodes/about nodes/waits; do
    { read -r value <"$1/$name" && fact note "$path/$name	$value"; } 2>/dev/null
  done
  value=
  { read -r value <"$1/dir"; } 2>/dev/null
  case ${value##*/} in *@*) fact note "$path/tree	${value##*/}" ;; esac
  [ "$2" != died ] || ! began_since_boot "$1" || fact note "$path/boot	same"
}

# began_since_boot RUN: whether neither the box nor its container was restarted since.
began_since_boot() {
  { read -r pid start boot <"$1/pid"; } 2>/dev/null && find_identity 1 || return 1
  # shellcheck disable=SC2086 # number, start, boot
  set -- $_identity
  [ -n "$pid" ] && [ "$boot" = "$3" ] && [ "$start" -ge "$2" ]
}

# The key that this repository has on this box, its folder, and the run that is alive in it.
show_repository() {
  fact key "$repo_key"
  fact dir "$repo_dir"
  [ ! -d "$repo_dir" ] || fact placed yes
  { read -r venv <"$box_home/steps/$repo_key/python.venv" && fact venv "$venv"; } 2>/dev/null || :
  { read -r switch _ <"$box_home/steps/$repo_key/repo.switch" && fact switch "$switch"; } 2>/dev/null || :
  printf 'alive\t' && { alive_in "$box_home" "$repo_key" "$repo_dir" || echo; }
}

# The work that this repository's last setup started.
show_work() {
  [ -f "$box_home/steps/$repo_key/train.ok" ] || return 0
  read -r work <"$box_home/steps/$repo_key/train.ok"
  fact work "$work"
}

show_plan() {
  own=$box_home/steps/$repo_key/setup.sh
  script=$(sha256sum "$own" 2>/dev/null) || return 0
  fact script "${script%% *}"
  if [ "${script%% *}" = "$script_id" ]; then bash "$own" plan; fi
}

find_home
describe
if [ -n "$repo_key" ]; then
  find_repository "$box_home" "$repo_key" "$repo_root" ""
  show_repository
  show_work
fi
show_setups
show_lease
show_runs
[ ! -f "$box_home/secrets" ] || show_secrets
# A caller that asks about a script will send its commit, and needs to know which ones the box has.
[ -z "$script_id" ] || { show_commits && show_plan; }
