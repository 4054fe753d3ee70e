#!/bin/bash
# PID 1 of a box's fresh namespaces, until the box's own init takes its place.
# It builds the box's root from its layers, waits for its network card, pivots into the root and execs the init.
# All mounts are in the box's own mount namespace, so none is left on this machine when the box dies.
#
#   box.sh NAME FOLDER LOWER ADDRESS/PREFIX GATEWAY MTU [MOUNT...] -- NAME=VALUE...
#
# Standard output: the pid of this process on the host, then "up" when the card has its address and the root is
# the box's. Standard input: a line "go" once the card exists, then orders for the init; end of file ends the box.
set -eu

# Only the capabilities of an unprivileged container: the box's root cannot set this machine's clock, load modules
# or mount.
caps=-all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+setpcap
caps=$caps,+net_bind_service,+net_raw,+sys_chroot,+mknod,+audit_write,+setfcap

mount_all() { # FOLDER LOWER ROOT
  local store=$1 from=$1/mounts
  if [ -e "$1/disk.img" ]; then # a disk of its own, of limited size
    store=$1/disk
    mkdir -p "$store"
    mount -o loop "$1/disk.img" "$store"
    mkdir -p "$store/upper"
    cp -a "$1/upper/." "$store/upper/"
    find "$1/upper" -mindepth 1 -delete
    rm -rf "$store/work"
    mkdir "$store/work"
  fi
  # One process for all of them: starting a program costs as much as a mount.
  echo "\
box $3 overlay lowerdir=$2,upperdir=$store/upper,workdir=$store/work,volatile
proc $3/proc proc nosuid,nodev,noexec
$3/proc/sys $3/proc/sys none bind,ro
sysfs $3/sys sysfs ro,nosuid,nodev,noexec
dev $3/dev tmpfs mode=755,nosuid,size=64k
devpts $3/dev/pts devpts newinstance,ptmxmode=0666,mode=0620,gid=5,X-mount.mkdir
shm $3/dev/shm tmpfs mode=1777,nosuid,nodev,size=1g,X-mount.mkdir" >"$from"
  mount --all --fstab "$from"
  cp -a /dev/{null,zero,full,random,urandom,tty,fd,stdin,stdout,stderr} "$3/dev/"
  ln -s pts/ptmx "$3/dev/ptmx"
}

# A mount of a variant: "tmpfs PATH SIZE" (existing files are copied in), "ro PATH"; of coverage: "bind PATH FROM".
mount_variant() { # ROOT KIND PATH [SIZE or FROM]
  local aside=$1/mnt
  case $2 in
    tmpfs)
      mount -t tmpfs -o "size=$4" tmpfs "$aside"
      cp -a "$1$3/." "$aside/"
      mount --move "$aside" "$1$3"
      ;;
    ro)
      mount --bind "$1$3" "$1$3"
      mount -o remount,bind,ro "$1$3"
      ;;
    bind)
      mkdir -p "$1$3"
      mount --bind "$4" "$1$3"
      ;;
  esac
}

set_up_network() { # ADDRESS/PREFIX GATEWAY MTU
  ip -batch - <<END
link set lo up
addr add $1 dev eth0
link set eth0 up
route add default via $2 mtu $3 advmss $(($3 - 40))
END
}

main() {
  local name=$1 folder=$2 lower=$3 address=$4 gateway=$5 mtu=$6 root=$2/root pid shell=/bin/bash _
  shift 6
  read -r pid _ </proc/self/stat # this /proc is still the host's: its number for us
  mount_all "$folder" "$lower" "$root"
  while [ "$1" != -- ]; do
    # shellcheck disable=SC2086 # a mount is a few words
    mount_variant "$root" $1
    shift
  done
  shift
  echo "$name" >/proc/sys/kernel/hostname
  echo "$pid"
  read -r _
  set_up_network "$address" "$gateway" "$mtu"
  cd "$root"
  pivot_root . mnt
  cd /
  umount -l /mnt
  : >/run/sshd.pid
  echo up
  [ -x "$shell" ] || shell=/opt/rig/bash # a kind without bash
  exec /usr/bin/setpriv --bounding-set "$caps" --inh-caps=-all \
    /usr/bin/env -i "$@" "$shell" /sbin/box-init >/var/log/box-init.log 2>&1
}

main "$@"
