# shellcheck shell=bash
# errors: turns what a failed command printed into one code, by the rows ERRORS of onbox/retries.py. The first match wins.

# Separates the attempts in a step's log: what an earlier attempt printed does not explain why the last one failed.
TRYING_AGAIN='trying again in'

# classify_error LOG: prints the code; `command-failed` if nothing matches and the disk is not full.
classify_error() {
  local row text
  text=$(exec tail -n 60 "$1" 2>/dev/null) || text=
  # These only warn that they can't look up the box's own name.
  text=$(printf %s "$text" | grep -avE '^(sudo|hostname): ') || text=
  text=${text##*"$TRYING_AGAIN"}
  for row in "${ERRORS[@]}"; do
    if [[ $text =~ ${row#*|} ]]; then
      case ${row%%|*} in *-unreachable | no-dns) ! name_dead_proxy "$1" || return 0 ;; esac
      printf '%s\n' "${row%%|*}"
      return
    fi
  done
  # On a full disk the message could not be logged either.
  { read -r _ && read -r _ _ _ text _; } < <(df -Pk -- "${1%/*}" 2>/dev/null) || :
  case $text in [0-9] | [0-9][0-9]) printf 'disk-full\n' && return ;; esac
  printf 'command-failed\n'
}

# name_dead_proxy LOG: prints the code if a proxy that this box's programs are told to use doesn't answer; 1 if all do.
# Which one stands in the log then.
name_dead_proxy() {
  local name place
  for name in https_proxy HTTPS_PROXY http_proxy HTTP_PROXY all_proxy ALL_PROXY; do
    place=${!name-} place=${place#*://} place=${place%%/*} place=${place##*@}
    [[ $place =~ ^\[?([0-9A-Za-z_.:-]+)\]?:([0-9]+)$ ]] || continue
    # shellcheck disable=SC2016 # that shell's own
    ! timeout 3 bash -c ': <"/dev/tcp/$0/$1"' "${BASH_REMATCH[@]:1}" 2>/dev/null || continue
    printf 'the proxy %s of %s does not answer\n' "$place" "$name" >>"$1"
    printf 'proxy-unreachable\n'
    return
  done
  return 1
}

is_network_error() {
  case $(classify_error "$STEP_LOG") in no-dns | *-unreachable) return 0 ;; *) return 1 ;; esac
}
