# shellcheck shell=bash disable=SC2034,SC2088 # set here, read elsewhere; a profile's ~ is literal
# base: small words that every other file uses.

have() { command -v "$1" >/dev/null 2>&1; }

# The time in seconds with a fraction, in NOW; no process is started where bash knows it itself.
now() {
  if [ -n "${EPOCHREALTIME-}" ]; then NOW=$EPOCHREALTIME; else NOW=$(date +%s.%N); fi
}

# A path as the profile gives it: `~/` is the home of the box, the rest is literal.
expand_home() {
  case $1 in
    '~') printf '%s\n' "$HOME" ;;
    '~/'*) printf '%s\n' "$HOME/${1#'~/'}" ;;
    *) printf '%s\n' "$1" ;;
  esac
}

# The arguments in INPUTS, quoted so that no two lists look alike: what a stamp holds, for all to read.
inputs() { printf -v INPUTS '%q ' "$@"; }

# digest FILE: its SHA-256 in DIGEST.
digest() {
  DIGEST=$(exec sha256sum <"$1")
  DIGEST=${DIGEST%% *}
}

# read_text FILE: all of it in TEXT; 1 where it can't be read. Bash reads faster than a process starts.
read_text() {
  TEXT=
  [ -r "$1" ] || return
  IFS= read -r -d '' TEXT <"$1" || :
}

is_text() { read_text "$1" && [ "$TEXT" = "$2" ]; }

# is_line FILE LINE: the file has it as a whole line.
is_line() { read_text "$1" && [[ $'\n'$TEXT$'\n' == *$'\n'"$2"$'\n'* ]]; }

# The text, or else standard input, becomes the file, whole or not at all: write_file PATH MODE [TEXT].
write_file() {
  local new="$1.new.$BASHPID"
  # From its beginning nobody else reads it. All of ours works with the umask 022.
  [ "$2" = 644 ] || umask 077
  : >"$new"
  umask 022
  if [ "$#" -gt 2 ]; then printf %s "$3"; else cat; fi >"$new" &&
    { [[ $2 = 6* ]] || chmod "$2" "$new"; } && mv -f "$new" "$1"
}

# write_if_changed PATH MODE TEXT: what is right is not touched.
write_if_changed() { is_text "$1" "$3" || write_file "$@"; }

# Ends the step: fail CODE SENTENCE... The code travels in its event, with numbers after it where there
# are some ("dpkg-locked pid=812"); the sentences stay in its log.
fail() {
  printf '%s\n' "$1" >"$STEP_CODE"
  shift
  printf '%s\n' "$@" >&2
  exit 1
}

# Goes on, and says so: caution CODE SENTENCE...
caution() {
  emit warn "code=$1"
  shift
  printf '%s\n' "$@" >&2
}

# Runs a command again after 2 seconds, then every 8, where the network is to blame: a link that is gone for
# half a minute is waited for. But not where a minute has gone: uv, apt and git try again by themselves, and
# a server that stalls had its time then.
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
