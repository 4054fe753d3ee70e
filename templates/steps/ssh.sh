# shellcheck shell=bash
# ssh: the profile's public keys may log in; the git hosts' own keys are known, so nobody is asked.

inputs_ssh() { inputs v1 "${AUTHORIZED_KEYS[@]-}" "${KNOWN_HOSTS[@]-}"; }

check_ssh() {
  local key
  can_write_ssh || return 0
  for key in ${AUTHORIZED_KEYS[@]+"${AUTHORIZED_KEYS[@]}"}; do
    authorized "$key" || return 1
  done
  [ -z "$(unknown_hosts)" ] && modes_right
}

apply_ssh() {
  local key
  if ! can_write_ssh; then
    caution read-only-home "$HOME can't be written: no key was added to those that may log in"
    return
  fi
  mkdir -p "$HOME/.ssh"
  for key in ${AUTHORIZED_KEYS[@]+"${AUTHORIZED_KEYS[@]}"}; do
    authorized "$key" || add_line "$HOME/.ssh/authorized_keys" "$key"
  done
  unknown_hosts | while IFS= read -r key; do add_line "$HOME/.ssh/known_hosts" "$key"; done
  chmod go-w "$HOME" 2>/dev/null || :
  chmod 700 "$HOME/.ssh"
  [ ! -f "$HOME/.ssh/authorized_keys" ] || chmod 600 "$HOME/.ssh/authorized_keys"
}

can_write_ssh() { if [ -e "$HOME/.ssh" ]; then [ -w "$HOME/.ssh" ]; else [ -w "$HOME" ]; fi; }

# By the key itself: comments and options differ, and a line may be switched off with `#`.
authorized() {
  local blob
  read -r _ blob _ <<<"$1"
  grep -v '^[[:space:]]*#' "$HOME/.ssh/authorized_keys" 2>/dev/null | grep -qF -- "$blob"
}

modes_right() {
  [ ! -d "$HOME/.ssh" ] || [ "$(stat -Lc %a "$HOME/.ssh")" = 700 ] || return 1
  [ ! -f "$HOME/.ssh/authorized_keys" ] || [ "$(stat -Lc %a "$HOME/.ssh/authorized_keys")" = 600 ]
}

unknown_hosts() {
  local line known=
  [ ! -r "$HOME/.ssh/known_hosts" ] || known=$'\n'$(<"$HOME/.ssh/known_hosts")$'\n'
  for line in "${KNOWN_HOSTS[@]}"; do
    [[ $known == *$'\n'"$line"$'\n'* ]] || printf '%s\n' "$line"
  done
}

# A last line without its newline is mended first; else two keys become one.
add_line() {
  [ ! -s "$1" ] || [ -z "$(tail -c 1 "$1")" ] || printf '\n' >>"$1"
  printf '%s\n' "$2" >>"$1"
}
