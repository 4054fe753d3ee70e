# shellcheck shell=bash disable=SC2034 # set here, read elsewhere
# gather: the secrets that the profile names, from the box or from the terminal; before anything begins.

# box_value NAME: what the box's own environment has for it; providers keep that in several places.
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

# ask_for NAME: VALUE from the terminal, not shown; fails where there is none.
ask_for() {
  VALUE=
  [ ! -t 0 ] || IFS= read -rsp "$1 (it is not shown): " VALUE
  [ ! -t 0 ] || printf '\n'
  [ -n "$VALUE" ]
}

# Fills GATHERED with NAME=VALUE; ends here, with nothing changed, where one can't be had.
gather() {
  local name
  GATHERED=()
  for name in ${SECRETS[@]+"${SECRETS[@]}"}; do
    VALUE=$(box_value "$name")
    [ -n "$VALUE" ] || ask_for "$name" ||
      refuse "the secret $name is not in this box's environment, and there is no terminal to ask on"
    GATHERED+=("$name=$VALUE")
  done
}

refuse() {
  printf 'boxstrap: %s.\n' "$*" >&2
  [ -n "$SETUP_DIR" ] || printf 'Nothing was changed.\n' >&2
  exit 5
}
