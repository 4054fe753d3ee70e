# shellcheck shell=bash
# ssh: the profile's public keys may log in; the git hosts' own keys are known, so ssh asks nothing.

inputs_ssh() { inputs v1 "${AUTHORIZED_KEYS[@]-}" "${KNOWN_HOSTS[@]-}"; }

check_ssh() {
  local key
  can_write_ssh || return 0
  for key in "${AUTHORIZED_KEYS[@]}"; do
    authorized "$key" || return 1
  done
  find_unknown
  [ "${#UNKNOWN_HOSTS[@]}" -eq 0 ] || return
  modes_right
}

apply_ssh() {
  local key
  if ! can_write_ssh; then
    caution read-only-home "$HOME can't be written: no key was added to those that may log in"
    return
  fi
  mkdir -p "$HOME/.ssh"
  for key in "${AUTHORIZED_KEYS[@]}"; do
    authorized "$key" || add_lines "$HOME/.ssh/authorized_keys" "$key"
  done
  find_unknown
  [ "${#UNKNOWN_HOSTS[@]}" -eq 0 ] || add_lines "$HOME/.ssh/known_hosts" "${UNKNOWN_HOSTS[@]}"
  chmod go-w "$HOME" 2>/dev/null || :
  chmod 700 "$HOME/.ssh"
  [ ! -f "$HOME/.ssh/authorized_keys" ] || chmod 600 "$HOME/.ssh/authorized_keys"
}

can_write_ssh() { if [ -e "$HOME/.ssh" ]; then [ -w "$HOME/.ssh" ]; else [ -w "$HOME" ]; fi; }

# Compares only the key itself: comments and options differ, and a line may be disabled with `#`.
authorized() {
  local blob=${1#* } line
  blob=${blob%% *}
  {
    # `read` removes the blanks before a `#`.
    while read -r line || [ -n "$line" ]; do
      case $line in '#'*) ;; *"$blob"*) return ;; esac
    done <"$HOME/.ssh/authorized_keys"
  } 2>/dev/null
  return 1
}

modes_right() {
  [ -d "$HOME/.ssh" ] || return 0
  case $(exec stat -Lc %a -- "$HOME/.ssh" "$HOME/.ssh/authorized_keys" 2>/dev/null) in 700 | 700$'\n'600) ;; *) return 1 ;; esac
}

# Sets UNKNOWN_HOSTS to those of KNOWN_HOSTS that are not known here.
find_unknown() {
  local line
  UNKNOWN_HOSTS=()
  read_text "$HOME/.ssh/known_hosts" || :
  for line in "${KNOWN_HOSTS[@]}"; do
    [[ $'\n'$TEXT$'\n' == *$'\n'"$line"$'\n'* ]] || UNKNOWN_HOSTS+=("$line")
  done
}

# Completes a last line that has no newline; otherwise two keys would become one.
add_lines() {
  [ ! -s "$1" ] || [ -z "$(tail -c 1 "$1")" ] || printf '\n' >>"$1"
  printf '%s\n' "${@:2}" >>"$1"
}
