# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# take_dependency: prints what the store has of one, then reads a line `BYTES FORMAT HEAD` and a bundle from standard
# input, for the setup that waits for it.
# library: packs store queries/program

find_home
folder=$box_home/setups/$setup_id
store=$box_home/dependencies/$store.git
umask 077
identity $$ >"$folder/dependencies.sender"
packs_right "$store/packs" "$store/objects/pack" || rm -rf "$store"
store_git() { git --git-dir="$store" -c safe.directory="$store" -c core.hooksPath=/dev/null "$@"; }
[ ! -d "$store" ] || store_git for-each-ref --format='ref%09%(objectname)%09%(refname)' refs/heads refs/tags refs/boxstrap
printf '\nready\n'
IFS=' ' read -r bytes format head || exit
if [ "$head" != - ]; then
  open_store "$store" "$format"
  part=$store/sent.$$
  if [ "$bytes" -gt 0 ]; then
    head -c "$bytes" >"$part"
    # What was cut off is sent again.
    [ "$(wc -c <"$part")" -eq "$bytes" ] || { rm -f "$part" && exit 1; }
    # A clone gets only branches and tags.
    store_git fetch -q --no-auto-gc --update-head-ok "$part" '+refs/*:refs/*' '+refs/boxstrap/*:refs/heads/boxstrap/*' || is_last=failed
    rm -f "$part"
    (cd "$store/objects/pack" && stat -c '%s %n' -- *.pack *.idx) >"$store/packs"
  fi
  case $head in refs/boxstrap/*) head=refs/heads/${head#refs/} ;; esac
  case $head in refs/heads/*) store_git symbolic-ref HEAD "$head" ;; esac
  store_git config uploadpack.allowAnySHA1InWant true
fi
# The setup does not wait for what could not be stored.
[ -z "$is_last" ] || : >"$folder/dependencies"
[ "$is_last" != failed ] || exit 1
printf '\narrived\n'
