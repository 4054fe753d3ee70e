# shellcheck shell=bash
# errors: turns what a failed command printed into one code. The first match wins.

# Separates the attempts in a step's log: what an earlier attempt printed does not explain why the last one failed.
TRYING_AGAIN='trying again in'

# Patterns match the whole text; one that must stay within a line says so.
ERRORS=(
  'disk-full|No space left on device'
  'inodes-full|no free inodes'
  'no-dns|Temporary failure in name resolution|Temporary failure resolving|[Cc]ould not resolve|NameResolutionError|unable to resolve host|dns error|failed to lookup address|Name or service not known'
  'dpkg-locked|Could not get lock|is another process using it'
  'dependency-private|could not read Username|Authentication failed|Permission denied \(publickey|Host key verification failed'
  $'git-unreachable|unable to access [^\n]*(Failed to connect|t connect to server|timed out|returned error: 5|too slow|refused|reset|Empty reply|SSL_ERROR_SYSCALL|GnuTLS recv|No route to host|Network is unreachable)|RPC failed|hung up unexpectedly|early EOF|ssh: connect to host|kex_exchange_identification|Connection closed by [^\n]* port'
  'index-unreachable|No route to host|Network is unreachable|ENETUNREACH|EHOSTUNREACH|NewConnectionError|Max retries exceeded|Remote end closed|IncompleteRead|network timeout|error (decoding|reading a) (response )?body|returned error: (429|5[0-9][0-9])|(429|50[0-9]):? (Too Many|Service|Bad|Gateway|Internal)|[Cc]url error|failed retrieving file|temporary error .try again|status (server|client) error|([Cc]ould not|[Cc]ouldn.t|[Uu]nable to) connect|Cannot initiate the connection|[Cc]onnection (refused|reset|timed out)|operation timed out|error sending request|[Tt]imed out|Failed to fetch'
  'wheel-missing|has no wheels with a matching Python'
  'package-missing|was not found in the (package registry|provided package locations)|from versions: none'
  'resolve-failed|No solution found|unsatisfiable|ResolutionImpossible|No matching distribution'
  'build-failed|Failed to build|Failed building wheel|build backend'
)

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
