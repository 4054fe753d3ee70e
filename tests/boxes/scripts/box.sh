#!/bin/bash
# PID 1 of a box's fresh namespaces, until the box's own init takes its place.
# It builds the box's root from its layers, waits for its network card, moves
# in and hands over. Everything mounted here belongs to the box's own mount
# namespace: when the box dies, nothing of it is left on this machine.
#
#   box.sh NAME FOLDER LOWER ADDRESS/PREFIX GATEWAY MTU [MOUNT...] -- NAME=VALUE...
#
# Standard output: the host's pid of this process, then "up" when the card has its
# address. Standard input: a line "go" once the card is there, afterwards the init's
# orders; its end ends the box.
set -eu

# What an unprivileged container is given, and no more: the box's root cannot
# set this machine's clock, load modules or mount.
caps=-all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+setpcap
caps=$caps,+net_bind_service,+net_raw,+sys_chroot,+mknod,+audit_write,+setfcap

mount_root() { # FOLDER LOWER ROOT
  local store=$1
  if [ -e "$1/disk.img" ]; then # a disk of its own, of limited size
    store=$1/disk
    mkdir -p "$store"
    mount -o loop "$1/disk.img" "$store"
    mkdir -p "$store/upper"
    cp -a "$1/upper/." "$store/upper/"
    find "$1/upper" -mindepth 1 -delete
  fi
  rm -rf "$store/work"
  mkdir -p "$store/work"
  mount -t overlay box -o "lowerdir=$2,upperdir=$store/upper,workdir=$store/work,volatile" "$3"
}

mount_system() { # ROOT
  mount -t proc -o nosuid,nodev,noexec proc "$1/proc"
  mount --bind "$1/proc/sys" "$1/proc/sys"
  mount -o remount,bind,ro "$1/proc/sys"
  mount -t sysfs -o ro,nosuid,nodev,noexec sysfs "$1/sys"
  mount -t tmpfs -o mode=755,nosuid,size=64k dev "$1/dev"
  cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty "$1/dev/"
  ln -s pts/ptmx "$1/dev/ptmx"
  ln -s /proc/self/fd "$1/dev/fd"
  ln -s /proc/self/fd/0 "$1/dev/stdin"
  ln -s /proc/self/fd/1 "$1/dev/stdout"
  ln -s /proc/self/fd/2 "$1/dev/stderr"
  mkdir "$1/dev/pts" "$1/dev/shm"
  mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 devpts "$1/dev/pts"
  mount -t tmpfs -o mode=1777,nosuid,nodev,size=1g shm "$1/dev/shm"
}

# A mount of a variant: "tmpfs PATH SIZE" (what lies there is copied in), "ro PATH".
mount_variant() { # ROOT KIND PATH [SIZE]
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
  mkdir -p "$root"
  mount_root "$folder" "$lower" "$root"
  mount_system "$root"
  while [ "$1" != -- ]; do
    # shellcheck disable=SC2086 # a mount is a few words
    mount_variant "$root" $1
    shift
  done
  shift
  hostname "$name"
  echo "$pid"
  read -r _
  set_up_network "$address" "$gateway" "$mtu"
  echo up
  cd "$root"
  pivot_root . mnt
  cd /
  umount -l /mnt
  [ -x "$shell" ] || shell=/opt/rig/bash # a kind without bash
  exec /usr/bin/setpriv --bounding-set "$caps" --inh-caps=-all \
    /usr/bin/env -i "$@" "$shell" /sbin/box-init >/var/log/box-init.log 2>&1
}

main "$@"
