#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# The first thing to run inside the virtual machine, see boot.sh: makes it a
# machine where the daemon and a Kubernetes node can run, and runs the command.
# What is written goes to memory, but for the command's exit status.
#
# usage: guest.sh STATUS-FILE DIRECTORY COMMAND…
set -euo pipefail
exec {status}>"$1"
cd "$2"
shift 2
trap 'echo $? >&"$status"' EXIT

# Without udev virtme-ng doesn't find the port that leads to the caller's output.
modprobe virtio_console
for port in /sys/class/virtio-ports/*; do
	[[ $(<"$port/name") != virtme.stdout ]] || exec >"/dev/${port##*/}" 2>&1
done

mounted() { mountpoint -q "$1"; }

# overlay lets a directory be written to: what is written is kept in memory.
overlay() {
	local layer=/run/overlay/${1//\//-}
	mkdir -p "$layer/upper" "$layer/work"
	chmod --reference="$1" "$layer/upper"
	mount -t overlay -o "lowerdir=$1,upperdir=$layer/upper,workdir=$layer/work" overlay "$1"
}

modprobe -a veth cls_bpf sch_ingress overlay
overlay /tmp
mounted /sys/fs/bpf || mount -t bpf bpf /sys/fs/bpf
mounted /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing
mounted /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug
ip link set lo up
echo "kernel $(uname -r), up for $(cut -d. -f1 /proc/uptime) s"
"$@"
