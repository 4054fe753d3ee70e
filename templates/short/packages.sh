# shellcheck shell=bash disable=SC2034 # manager reads it
# packages: the box's own package manager, in fewer words; a lock is waited for, and never broken.

MANAGERS=(apt-get dnf yum microdnf zypper pacman apk)

apt() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@" 9>&-; }

install_packages() {
  case $(manager) in
    apt-get) as_root dpkg --configure -a && with_retries apt update && with_retries apt install -y --no-install-recommends "$@" ;;
    zypper) as_root zypper -n install "$@" ;;
    pacman) as_root pacman -Sy --noconfirm --needed "$@" ;;
    apk) as_root apk add "$@" ;;
    *) as_root "$(manager)" install -y "$@" ;;
  esac
}
