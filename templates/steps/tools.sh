# shellcheck shell=bash
# tools: git, tmux, rsync, a python, and the profile's packages, through the box's own package manager.

# Command, its package, and the code of what its lack costs.
TOOLS=(
  'git|git|no-git'
  'tmux|tmux|no-tmux'
  'rsync|rsync|no-rsync'
  'python3|python3|no-python'
)

inputs_tools() { inputs v1 "${PACKAGES[@]-}"; }

# Where nothing can be installed, what is missing was said and stays so.
check_tools() { [ -z "$(missing_tools)" ] || ! can_install; }

apply_tools() {
  local row names=()
  if ! can_install; then
    missing_tools | while IFS= read -r row; do
      caution "${row##*|}" "${row%%|*} is not here, and it cannot be installed without root or sudo"
    done
    if [ "${#PACKAGES[@]}" -gt 0 ] && [ -z "$IS_LOCAL" ]; then
      caution missing-tools "packages asked for, not installed: ${PACKAGES[*]}"
    fi
    return
  fi
  [ "$(manager)" != apt-get ] || mend_dpkg || : # full
  while IFS= read -r row; do
    row=${row#*|}
    names+=("${row%%|*}")
  done < <(missing_tools)
  # Certificates come with most images, not with the barest.
  [ "${#names[@]}" -eq 0 ] || [ -e /etc/ssl/certs/ca-certificates.crt ] || names+=(ca-certificates)
  names+=(${PACKAGES[@]+"${PACKAGES[@]}"})
  [ "${#names[@]}" -eq 0 ] || install_packages "${names[@]}"
}

missing_tools() {
  local row
  for row in "${TOOLS[@]}"; do have "${row%%|*}" || printf '%s\n' "$row"; done
}
