# shellcheck shell=bash
# tools: git, tmux, a python, and the profile's packages, through the box's own package manager.

# Command, its package, and the code of the warning if it is missing.
TOOLS=(
  'git|git|no-git'
  'tmux|tmux|no-tmux'
  'python3|python3|no-python'
)

inputs_tools() { inputs v1 "${PACKAGES[@]-}"; }

# If nothing can be installed, what is missing was reported and stays missing; the profile's packages are asked for again.
check_tools() {
  # Noted by an earlier setup.
  [ -e "$BOX_HOME/steps/tools.lacking" ] && ! is_text "$BOX_HOME/steps/tools.lacking" "${SETUP_ID-}" && return 1
  find_missing
  [ "${#MISSING_TOOLS[@]}" -eq 0 ] || ! can_install
}

apply_tools() {
  local row names=()
  find_missing
  if ! can_install; then
    for row in "${MISSING_TOOLS[@]}"; do
      caution "${row##*|}" "${row%%|*} is not here, and it cannot be installed without root or sudo"
    done
    [ -n "$IS_LOCAL" ] ||
      [ "${#PACKAGES[@]}" -eq 0 ] || caution missing-tools "packages asked for, not installed: ${PACKAGES[*]}"
    [ "${#PACKAGES[@]}" -eq 0 ] || [ -n "$IS_LOCAL" ] || printf %s "$SETUP_ID" >"$BOX_HOME/steps/tools.lacking"
    return
  fi
  [ "$(manager)" != apt-get ] || repair_dpkg || :
  for row in "${MISSING_TOOLS[@]}"; do
    row=${row#*|}
    names+=("${row%%|*}")
  done
  # Most images have certificates, the smallest ones don't.
  [ "${#names[@]}" -eq 0 ] || [ -e /etc/ssl/certs/ca-certificates.crt ] || names+=(ca-certificates)
  names+=("${PACKAGES[@]}")
  [ "${#names[@]}" -eq 0 ] || install_packages "${names[@]}"
  rm -f "$BOX_HOME/steps/tools.lacking"
}

# Sets MISSING_TOOLS to the rows of TOOLS that are not here.
find_missing() {
  local row
  MISSING_TOOLS=()
  for row in "${TOOLS[@]}"; do have "${row%%|*}" || MISSING_TOOLS+=("$row"); done
}
