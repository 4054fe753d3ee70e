#!/bin/bash
# A box's init: starts sshd, adopts and reaps orphaned processes, and ends the
# box with all its processes when the rig closes standard input.
mkdir -p /run/sshd

start_sshd() {
  /usr/sbin/sshd -D -E /var/log/sshd.log </dev/null >/dev/null 2>&1 &
}

start_sshd
while read -r order; do
  case $order in
    sshd) start_sshd ;;
  esac
done
