# shellcheck shell=bash disable=SC2034,SC2088 # set here, read elsewhere; a profile's ~ is literal
# base: small functions that every other file uses.

have() { command -v "$1" >/dev/null 2>&1; }

# Takes back what an environment changes about shells and their tools. A login does so before its shell starts; a door
# starts this one directly.
reset_shell() {
  unset BASH_COMPAT BASH_ENV BASH_XTRACEFD CDPATH ENV EXECIGNORE FUNCNEST
  unset GLOBIGNORE GLOBSORT GREP_OPTIONS POSIXLY_CORRECT TMOUT
  # They can't be unset: no other shell gets them.
  export -n BASHOPTS SHELLOPTS
  # Messages are read, and numbers computed with. An earlier LC_ALL would count more.
  unset LC_ALL LANGUAGE
  export LC_MESSAGES=C LC_NUMERIC=C
  [ -w "${TMPDIR:-/tmp}" ] || unset TMPDIR
}

# Sets NOW to the time in seconds with a fraction; starts no process if bash knows the time itself.
now() {
  if [ -n "${EPOCHREALTIME-}" ]; then NOW=$EPOCHREALTIME; else NOW=$(date +%s.%N); fi
}

# Prints a path of the profile as the box needs it: `~/` is the box's home, the rest is literal.
expand_home() {
  case $1 in
    '~') printf '%s\n' "$HOME" ;;
    '~/'*) printf '%s\n' "$HOME/${1#'~/'}" ;;
    *) printf '%s\n' "$1" ;;
  esac
}

# Sets INPUTS to the arguments, quoted so that no two lists look alike. A stamp holds this as readable text.
inputs() { printf -v INPUTS '%q ' "$@"; }

# digest FILE: sets DIGEST to its SHA-256.
digest() {
  DIGEST=$(exec sha256sum <"$1")
  DIGEST=${DIGEST%% *}
}

# read_text FILE: reads all of it into TEXT; 1 if it can't be read. Faster than starting a process.
read_text() {
  TEXT=
  [ -r "$1" ] || return
  IFS= read -r -d '' TEXT <"$1" || :
}

is_text() { read_text "$1" && [ "$TEXT" = "$2" ]; }

# is_line FILE LINE: whether the file has this whole line.
is_line() { read_text "$1" && [[ $'\n'$TEXT$'\n' == *$'\n'"$2"$'\n'* ]]; }

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

# write_if_changed PATH MODE TEXT: leaves the file alone if it has this text already.
write_if_changed() { is_text "$1" "$3" || write_file "$@"; }

# onbox PROGRAM ARGUMENT...: runs one of boxstrap's programs in Python, in the box's own where ours is not made yet. Names
# of files may be any bytes, whatever the box's locale is.
onbox() {
  local python=$BOX_HOME/agent/bin/python
  [ -x "$python" ] || python=python3
  "$python" -I -S -B -X utf8 "$ONBOX" "$@"
}

# fail CODE SENTENCE...: ends the step. The code goes into its event, with numbers after it if there are any
# ("dpkg-locked pid=812"); the sentences stay in its log.
fail() {
  printf '%s\n' "$1" >"$STEP_CODE"
  shift
  printf '%s\n' "$@" >&2
  exit 1
}

# caution CODE SENTENCE...: warns, and continues.
caution() {
  emit warn "code=$1"
  shift
  printf '%s\n' "$@" >&2
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
