#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# The first script to run inside the virtual machine: see boot.sh. It prepares the machine
# for the daemon and a Kubernetes node, and runs the command. All writes go to memory,
# except for the command's exit status.
#
# usage: guest.sh STATUS-FILE DIRECTORY COMMAND…
set -euo pipefail
exec {status}>"$1"
directory=$2
shift 2
trap 'echo $? >&"$status"' EXIT

# Without udev, virtme-ng doesn't find the port for the caller's output.
modprobe virtio_console
for name in /sys/class/virtio-ports/*/name; do
	port=${name%/name}
	[[ $(<"$name") != virtme.stdout ]] || exec >"/dev/${port##*/}" 2>&1
done
dmesg --console-level warn
modprobe -a overlay virtio_blk virtio_net veth cls_bpf sch_ingress

mounted() { mountpoint -q "$1"; }

mounted /sys/fs/bpf || mount -t bpf bpf /sys/fs/bpf
mounted /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing
mounted /sys/kernel/security || mount -t securityfs securityfs /sys/kernel/security
mounted /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug
ip link set lo up

# The root file system: a writable layer in memory, with the files that boot.sh copied, above
# the caller's root.
mount -t tmpfs memory /mnt
mkdir /mnt/{copies,written,work,root}
[[ ! -b /dev/vda ]] || tar -xf /dev/vda -C /mnt/copies
mount -t overlay -o lowerdir=/mnt/copies:/,upperdir=/mnt/written,workdir=/mnt/work overlay /mnt/root
mount --make-rprivate /
for dir in /proc /sys /dev /run /lib/modules; do
	! mounted "$dir" || mount --rbind "$dir" "/mnt/root$dir"
done
cd /mnt/root
pivot_root . mnt
umount --lazy /mnt
cd "$directory"
echo "kernel $(uname -r), up for $(cut -d. -f1 /proc/uptime) s"
"$@"
