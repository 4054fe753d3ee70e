# shellcheck shell=sh disable=SC2154,SC3013 # the variables stand in front when it is sent; every sh there is knows -nt
# probe: who is this box, and what does it have already? Looks only; changes nothing.
# library: repository queries/program

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
  set -- "$box_home"/box/*/
  fact programs "$*"
  for name in $hint_files; do [ ! -e "$name" ] || fact file "$name"; done
}

# packs_right LIST DIR: whether each file of the list (SIZE NAME) that is still in DIR has its size. A pack never
# changes; one that is gone was repacked, or its commit can't be read, which is noticed elsewhere.
packs_right() {
  [ -s "$1" ] || return 0
  _sizes=$(cd "$2" 2>/dev/null && exec stat -c '%s %n' -- *.pack *.idx 2>/dev/null)
  [ "$_sizes" = "$(cat "$1")" ] || [ -z "$(printf '%s\n' "$_sizes" | grep -vxFf "$1" |
    while read -r _ _name; do grep -F " $_name" "$1"; done)" ]
}

show_commits() {
  store=$box_home/store/$repo_key.git
  [ -d "$store" ] && command -v git >/dev/null 2>&1 && packs_right "$store/packs" "$store/objects/pack" || return 0
  # What was placed last comes first: the next snapshot resembles it most, and a snapshot's date does not show its age.
  { read -r placed <"$box_home/steps/$repo_key/placed/HEAD" && [ -f "$store/refs/boxstrap/$placed" ] && fact have "$placed"; } 2>/dev/null || :
  git --git-dir="$store" -c safe.directory='*' \
    for-each-ref --count=20 --sort=-creatordate --format='have	%(objectname)' refs/boxstrap
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

# What there is to tell of runs and secrets: see onbox/runs/status.py. A first contact has none.
show_runs() {
  [ -f "$box_home/secrets" ] || for run in "$box_home"/runs/*/*/command; do
    [ ! -f "$run" ] || break
    return 0
  done
  find_program runs.status
  [ "$python" = python3 ] || fact redacts yes
  "$python" -I -B "$program" "$module" "$box_home" "$repo_key" "${repo_dir-}" "$details" </dev/null 2>/dev/null || fact unread yes
}

# The key that this repository has on this box, and its folder.
show_repository() {
  fact key "$repo_key"
  fact dir "$repo_dir"
  [ ! -d "$repo_dir" ] || fact placed yes
  { read -r venv <"$box_home/steps/$repo_key/python.venv" && fact venv "$venv"; } 2>/dev/null || :
  { read -r switch _ <"$box_home/steps/$repo_key/repo.switch" && fact switch "$switch"; } 2>/dev/null || :
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
# A caller that asks about a script will send its commit, and needs to know which ones the box has.
[ -z "$script_id" ] || { show_commits && show_plan; }
