# shellcheck shell=bash
# errors: turns what a failed command printed into one code, by the rows ERRORS of onbox/retries.py: the first that matches.

# Separates the attempts in a step's log.
TRYING_AGAIN='trying again in'

# classify_error LOG: prints the code; `command-failed` if nothing matches and the disk is not full.
classify_error() {
  local row text code=
  # Some only warn that they can't look up the box's own name, and what an earlier attempt printed doesn't explain this one.
  text=$(tail -n 60 "$1" 2>/dev/null | grep -avE '^(sudo|hostname): ') || :
  text=${text##*"$TRYING_AGAIN"}
  for row in "${ERRORS[@]}"; do
    [ -n "$code" ] || [[ ! $text =~ ${row#*|} ]] || code=${row%%|*}
  done
  case $code in *-unreachable | no-dns) ! name_dead_proxy >>"$1" || code=proxy-unreachable ;; esac
  # On a full disk the message could not be logged either.
  if [ -z "$code" ]; then
    { read -r _ && read -r _ _ _ text _; } < <(df -Pk -- "${1%/*}" 2>/dev/null) || :
    case $text in [0-9] | [0-9][0-9]) code=disk-full ;; esac
  fi
  printf '%s\n' "${code:-command-failed}"
}

# Names a proxy that this box's programs are told to use and that doesn't answer; 1 if all do.
name_dead_proxy() {
  local name place
  for name in https_proxy HTTPS_PROXY http_proxy HTTP_PROXY all_proxy ALL_PROXY; do
    place=${!name-} place=${place#*://} place=${place%%/*} place=${place##*@}
    [[ $place =~ ^\[?([0-9A-Za-z_.:-]+)\]?:([0-9]+)$ ]] || continue
    # shellcheck disable=SC2016 # that shell's own
    timeout 3 bash -c ': <"/dev/tcp/$0/$1"' "${BASH_REMATCH[@]:1}" 2>/dev/null || { printf 'the proxy %s of %s does not answer\n' "$place" "$name" && return; }
  done
  return 1
}

is_network_error() { case $(classify_error "$STEP_LOG") in no-dns | *-unreachable) ;; *) return 1 ;; esac; }
