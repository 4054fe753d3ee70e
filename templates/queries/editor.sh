# shellcheck shell=sh disable=SC2154 # the variables stand in front when it is sent
# editor: what an editor's server finds on this box, and its current settings. Changes nothing.

fact() { printf '%s\t%s\n' "$1" "$2"; }

has() { command -v "$1" >/dev/null 2>&1; }

# Prints the options of the mount that holds a folder: the longest mount point above it.
mount_options() {
  found=
  length=0
  while read -r _ point _ options _; do
    case $1/ in
      "${point%/}"/*) if [ "${#point}" -ge "$length" ]; then found=$options length=${#point}; fi ;;
    esac
  done </proc/mounts
  printf '%s' "$found"
}

fact libc "$(getconf GNU_LIBC_VERSION 2>/dev/null || ldd --version 2>&1 | head -n 1)"
fact kernel "$(uname -r)"
for library in /usr/lib/*/libstdc++.so.6 /usr/lib64/libstdc++.so.6 /usr/lib/libstdc++.so.6 /lib/*/libstdc++.so.6; do
  if [ -r "$library" ] && grep -qa GLIBCXX_3.4.25 "$library"; then
    fact cxx new
    break
  fi
done
for tool in bash tar curl wget; do if has "$tool"; then fact tool "$tool"; fi; done
for folder in "$HOME" /tmp; do
  case ,$(mount_options "$folder"), in *,noexec,*) fact noexec "$folder" ;; esac
done
[ -w "$HOME" ] || fact unwritable "$HOME"
fact free "$(df -Pk "$HOME" 2>/dev/null | { read -r _ && read -r _ _ _ kilobytes _ && printf %s "$kilobytes"; })"
if [ -x "$python" ]; then fact python "$python"; fi
file=$HOME/$settings
if [ -e "$file" ]; then
  fact sum "$(cksum <"$file")"
  printf 'settings\n'
  head -c 1000000 "$file"
fi
