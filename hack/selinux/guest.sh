#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# Inside the virtual machine: loads each policy in enforcing mode, and runs the tests
# like a process of a privileged container.
#
# usage: guest.sh DIRECTORY — the directory contains the policies "without" and "with",
# and the test program "maps.test". The script adds "status" and "log".
set -uo pipefail
cd "$1"
exec >log 2>&1
trap 'echo 1 >status' ERR
mount -t tmpfs tmp /mnt
export TMPDIR=/mnt
mountpoint -q /sys/fs/selinux || mount -t selinuxfs selinuxfs /sys/fs/selinux
echo "kernel $(uname -r), lsm $(cat /sys/kernel/security/lsm 2>/dev/null)"
echo 0 >status
for module in without with; do
	echo "== $module the policy module"
	dd if="$module" of=/sys/fs/selinux/load bs=1M status=none
	echo 1 >/sys/fs/selinux/enforce
	export BPFMAN_SELINUX_MODULE=${module#without}
	(
		printf %s system_u:system_r:spc_t:s0-s0:c0.c2 >/proc/self/attr/exec
		exec ./maps.test -test.v -test.run SELinux
	)
done
dmesg | grep -E "avc: +denied" | cut -c1-400 || true
