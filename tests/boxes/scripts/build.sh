#!/bin/bash
# Builds one layer: what is installed and written inside the overlay ends up in UPPER.
#
#   build.sh LOWER UPPER WORK ROOT ARCHIVES LISTS -- PACKAGE... <script
#
# Runs in its own mount and PID namespaces. ARCHIVES and LISTS keep apt's
# downloads between layers; they are not part of the layer.
set -eu

lower=$1 upper=$2 work=$3 root=$4 archives=$5 lists=$6
shift 7
script=$(cat)

mount -t overlay layer -o "lowerdir=$lower,upperdir=$upper,workdir=$work" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --bind "$archives" "$root/var/cache/apt/archives"
mount --bind "$lists" "$root/var/lib/apt/lists"

inside() { chroot "$root" env -i HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
  PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@" </dev/null; }

if [ $# -gt 0 ]; then
  inside apt-get -q update
  inside apt-get -q install -y --no-install-recommends "$@"
fi
if [ -n "$script" ]; then
  inside /bin/bash -euc "$script"
fi
