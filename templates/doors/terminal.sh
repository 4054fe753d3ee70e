# shellcheck shell=bash disable=SC2034,SC2154 # set here, read elsewhere
# terminal: how a script behind a door asks and reports on the box itself, with no machine of the user's connected.

# box_value NAME: prints its value in the box's own environment; providers keep that in several places.
box_value() {
  local pair file
  if [ -n "${!1-}" ]; then
    printf '%s\n' "${!1}"
    return
  fi
  for file in /proc/1/environ "$BOX_HOME/secrets"; do
    while IFS= read -r -d '' pair; do
      if [ "${pair%%=*}" = "$1" ] && [ -n "${pair#*=}" ]; then
        printf '%s\n' "${pair#*=}"
        return
      fi
    done < <(cat "$file" 2>/dev/null)
  done
  sed -nE "s/^(export )?$1=[\"']?([^\"']*)[\"']?\$/\\2/p" /etc/environment /etc/rp_environment 2>/dev/null | tail -n 1
}

# ask_for NAME: reads VALUE from the terminal without showing it; fails if there is no terminal or no answer.
ask_for() {
  VALUE=
  [ ! -t 0 ] || IFS= read -rsp "$1 (it is not shown): " VALUE
  [ ! -t 0 ] || printf '\n'
  [ -n "$VALUE" ]
}

# Fills GATHERED with NAME=VALUE of each secret; ends here, with nothing changed, if one can't be had.
gather() {
  local name
  GATHERED=()
  for name in "${SECRETS[@]}"; do
    VALUE=$(box_value "$name")
    [ -n "$VALUE" ] || ask_for "$name" ||
      refuse "the secret $name is not in this box's environment, and there is no terminal to ask on"
    GATHERED+=("$name=$VALUE")
  done
}

# Puts the secrets into the setup's folder. If one changed since the last time, the step `shell` runs again.
hand_over_secrets() {
  [ "${#GATHERED[@]}" -gt 0 ] || return 0
  printf '%s\0' "${GATHERED[@]}" | write_file "$SETUP_DIR/secrets" 600
  cmp -s "$SETUP_DIR/secrets" "$BOX_HOME/secrets" || rm -f "$BOX_HOME"/steps/*/shell.ok "$BOX_HOME/secrets.ids"
}

refuse() {
  printf 'boxstrap: %s.\n' "$*" >&2
  [ -n "$SETUP_DIR" ] || printf 'Nothing was changed.\n' >&2
  exit 5
}

not_started() {
  tell_newest || :
  printf 'boxstrap: a run of other work is alive, and this was not started: wait for it, or stop it\n' >&2
  exit 8
}

# end_failed EXIT LOG...: prints the end of the logs and what the exit code means, then exits.
end_failed() {
  tail -qn 12 "${@:2}" >&2 || :
  [ "$1" -ne 6 ] || printf 'boxstrap: return this box\n' >&2
  exit "$1"
}
