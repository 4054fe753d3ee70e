#!/bin/bash
# Prints what a setup made of this box: two boxes that were set up alike give the same lines.
#
#   describe.sh WORKDIR REPOSITORY
#
# Left out is what differs between two equal boxes: times, PIDs, the names of git's packs, caches, the setups (one for
# each start), and the monitor's files, which a run gets only if it lives for a while.
# shellcheck disable=SC2016 # awk's own dollars
export LC_ALL=C
work=$1 tree=$1/$2 home=$1/.boxstrap

section() { printf '\n== %s\n' "$1"; }
names() { find "$@" -name __pycache__ -prune -o -printf '%p %M %u %l\n' | sort; }
sums() { find "$@" -type f ! -name '*.pyc' ! -name RECORD -print0 | sort -z | xargs -0 -r sha256sum; }
git_of() { git -c safe.directory='*' --no-optional-locks "$@" 2>&1; }

section "work folder"
ls -A "$work"

section tree
cd "$tree" || exit 1
find . \( -path ./.git -o -path ./.venv -o -name __pycache__ \) -prune -o -printf '%p %M %u %l\n' | sort
find . \( -path ./.git -o -path ./.venv -o -name __pycache__ \) -prune -o -type f -print0 | sort -z | xargs -0 -r sha256sum

section git
git_of symbolic-ref -q HEAD
git_of rev-parse HEAD
git_of status --porcelain
git_of for-each-ref
git_of config --local --list | sort
git_of fsck --full --no-dangling --no-progress
ls -A .git
find .git -name '*.lock'

section store
ls -A "$home/store"
for store in "$home"/store/*.git; do
  printf '%s\n' "${store##*/}"
  ls -A "$store"
  git_of --git-dir="$store" for-each-ref
  git_of --git-dir="$store" fsck --full --no-dangling --no-progress
done

section environment
names .venv
sums .venv
cat .venv/lib/python3*/site-packages/*.dist-info/RECORD | cut -d, -f1,2 | sort

section boxstrap
find "$home" \( -path "$home/setups" -o -path "$home/cache" -o -path "$home/runs" -o -path "$home/store" \
  -o -path "$home/agent/lib" -o -name __pycache__ -o -name monitor.lock \) -prune -o -printf '%p %M %u %l\n' | sort
names "$home"/agent/lib
find "$home/steps" "$home/box" -type f ! -name gpu.ok ! -path "*/placed/index" ! -name '*.pyc' ! -name repo.packs ! -name python.compiling -print0 | sort -z | xargs -0 sha256sum
sha256sum "$home"/env* "$home/known_hosts" "$home/uv"
find "$home/runs" -mindepth 1 -maxdepth 2 ! -name '*-[0-9]*'

section home
cd ~ || exit 1
for file in .bashrc .profile .bash_profile .no_auto_tmux .ssh .boxstrap; do
  [ ! -e "$file" ] || stat -c '%n %A %U %N' "$file"
done
sums .bashrc .profile .bash_profile .ssh 2>/dev/null
ls -A -I begun

section packages
dpkg --audit
dpkg-query -W

section "at work"
for dir in /proc/[0-9]*; do tr '\0\n' '  ' <"$dir/cmdline"; printf '\n'; done 2>/dev/null |
  grep -E 'setup\.sh|runner\.sh|train\.py|[ /](git|uv|apt-get|dpkg) ' | grep -v -e describe -e '^tmux ' | sort
tmux -L boxstrap list-sessions -F '#S' 2>/dev/null
exit 0
