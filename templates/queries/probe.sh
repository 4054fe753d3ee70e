# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# probe: who is this box, and what does it have already? Looks only; changes nothing.

fact() { printf '%s\t%s\n' "$1" "$2"; }

# What bash says, in one process that then becomes `uname`; an old one stops at what it does not understand.
describe() {
  bash --norc -c 'printf "bash\t%s\n" "$BASH_VERSION" && printf "time\t%(%s)T\nsystem\t" -1 && exec uname -sm' 2>/dev/null ||
    { echo && fact system "$(uname -sm)"; }
}

# Signs of a provider: of its variables, wherever they are set, the names, never the values.
show_signs() {
  said=
  for file in /proc/self/environ /proc/1/environ /etc/environment /etc/rp_environment; do
    while IFS= read -r line || [ -n "$line" ]; do said="$said $line"; done <"$file"
  done 2>/dev/null
  for name in $hint_names; do case $said in *"$name="*) fact env "$name" ;; esac; done
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
  if read -r last <"$box_home/setups/$setup/status.json"; then fact last "$last	$what"; fi
}

# What onbox/probe.py tells, whose text comes along. Where it can't, as at a first contact, there may be nothing to tell.
show_more() {
  if find_program __main__.py; then
    # A setup and `status` need not know the bash of a box that was set up.
    if [ "$python" = python3 ] || [ -z "$hint_names$details" ]; then describe; fi
    [ "$python" = python3 ] || fact redacts yes
    ! "$python" -I -S -B -X utf8 -c "$text" "${program%/onbox/*}" "$box_home" "$repo_key" "$repo_root" "$script_id" "$details" </dev/null 2>/dev/null || return 0
  fi
  describe
  for made in "$box_home"/secrets "$box_home"/runs/*/*/command; do [ ! -f "$made" ] || fact unread yes; done
  [ -n "$repo_key" ] || return 0
  repo_dir=${box_home%/*}/${repo_key%-*}
  fact key "$repo_key"
  fact dir "$repo_dir"
  [ ! -d "$repo_dir" ] || fact placed yes
}

find_home
fact home "$HOME"
fact boxhome "$box_home"
! command -v tmux >/dev/null 2>&1 || fact tmux yes
set -- "$box_home"/box/*/
fact programs "$*"
[ -z "$hint_names" ] || show_signs
show_setups
show_more
