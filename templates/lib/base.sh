# shellcheck shell=bash disable=SC2034,SC2088 # set here, read elsewhere; a profile's ~ is literal
# base: small functions.

# digest FILE: sets DIGEST to its SHA-256.
digest() {
  DIGEST=$(exec sha256sum <"$1")
  DIGEST=${DIGEST%% *}
}

# write_file PATH MODE [TEXT]: writes the text, or else standard input, to the file, whole or not at all.
write_file() {
  local new="$1.new.$BASHPID"
  # Nobody else may read it, from the moment it exists. Everything else here runs with the umask 022.
  [ "$2" = 644 ] || umask 077
  : >"$new"
  umask 022
  if [ "$#" -gt 2 ]; then printf %s "$3"; else cat; fi >"$new" &&
    { [[ $2 = 6* ]] || chmod "$2" "$new"; } && mv -f "$new" "$1"
}

# with_retries COMMAND...: runs a command again after 2 seconds, then every 8, if the network is to blame: a link that
# is down for half a minute is waited for. It gives up after a minute: uv, apt and git retry on their own, and a
# server that stalls has had its time by then.
with_retries() {
  local pause=2 rc until=$((SECONDS + 60))
  while :; do
    rc=0
    "$@" || rc=$?
    if [ "$rc" -eq 0 ] || [ "$SECONDS" -ge "$until" ] || ! is_network_error; then return "$rc"; fi
    emit wait "code=$(classify_error "$STEP_LOG")"
    printf '%s %s s\n' "$TRYING_AGAIN" "$pause" >&2
    sleep "$pause"
    pause=8
  done
}
