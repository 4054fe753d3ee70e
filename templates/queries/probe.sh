# shellcheck shell=sh disable=SC2154,SC3013 # the variables stand in front when it is sent; every sh there is knows -nt
# probe: who is this box, and what does it have already? Looks only; changes nothing.
# library: process queries/program

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

# What onbox/probe.py tells, whose text comes along. Where it can't, as at a first contact, there may be nothing to tell.
show_more() {
  if find_program probe; then
    [ "$python" = python3 ] || fact redacts yes
    ! "$python" -I -B -X utf8 -c "$text" "${program%/onbox/*}" "$box_home" "$repo_key" "$repo_root" "$script_id" "$details" </dev/null 2>/dev/null || return 0
  fi
  for made in "$box_home"/secrets "$box_home"/runs/*/*/command; do [ ! -f "$made" ] || fact unread yes; done
  [ -n "$repo_key" ] || return 0
  repo_dir=${box_home%/*}/${repo_key%-*}
  fact key "$repo_key"
  fact dir "$repo_dir"
  [ ! -d "$repo_dir" ] || fact placed yes
}

find_home
describe
show_setups
show_more
