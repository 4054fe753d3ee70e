# shellcheck shell=bash
# blame: what a failed command printed, as one code. First match wins.

BLAME=(
  'disk-full|No space left on device'
  'inodes-full|no free inodes'
  'no-dns|Temporary failure in name resolution|Temporary failure resolving|[Cc]ould not resolve|NameResolutionError|unable to resolve host|dns error|failed to lookup address|Name or service not known'
  'dpkg-locked|Could not get lock|is another process using it'
  'git-unreachable|unable to access .*(Failed to connect|t connect to server|timed out|returned error: 5|too slow|refused|reset)|RPC failed|hung up unexpectedly|early EOF|ssh: connect to host'
  'index-unreachable|50[0-9] (Service|Bad|Gateway|Internal)|status (server|client) error|Could not connect|[Cc]onnection (refused|reset|timed out)|operation timed out|error sending request|[Tt]imed out|Failed to fetch'
  'resolve-failed|No solution found|unsatisfiable|ResolutionImpossible|No matching distribution'
  'build-failed|Failed to build|Failed building wheel|build backend'
)

# blame LOG: prints the code, `command-failed` where nothing matches.
blame() {
  local row text
  text=$(tail -n 60 "$1" 2>/dev/null) || text=
  for row in "${BLAME[@]}"; do
    if grep -Eq "${row#*|}" <<<"$text"; then
      printf '%s\n' "${row%%|*}"
      return
    fi
  done
  printf 'command-failed\n'
}

network_to_blame() {
  case $(blame "$STEP_LOG") in no-dns | index-unreachable | git-unreachable) return 0 ;; *) return 1 ;; esac
}
