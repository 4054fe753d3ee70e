# shellcheck shell=sh disable=SC2154,SC2086 # the variables stand in front when it is sent; names are words
# wipe: removes the secrets from this box, while no setup is at work. Live runs keep what they were started with.

find_home
[ -d "$box_home" ] || exit 0
exec 9>>"$box_home/lock"
if ! flock -n 9; then
  printf 'busy\tyes\n'
  exit 0
fi
rm -f "$box_home"/runs/*/*/notify_to # addresses are secrets, too
BOX_HOME=$box_home ENV_FILE=$box_home/env bash --norc -c "$functions wipe_secrets \"\$@\"" wipe $names
