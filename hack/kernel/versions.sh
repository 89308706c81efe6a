# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# The components of the virtual machine, for the scripts here to source. Needs $cache.
# shellcheck shell=bash disable=SC2034
virtme_version=1.42
kernel_series=6.12
# QEMU 7.2 in Debian 12 executes stale instructions when the guest's kernel patches its code, for example to attach
# a program. With incoming packets, this led to "Oops: int3" within three minutes after attaching XDP, 3 times in
# 3. With 10.0.2, it never happened in 1052 times.
qemu_oldest=10

# What this kernel supports, with the names in internal/prerequisite. A test that lacks one of these fails.
kernel_can="root bpf XDP TC TCX Fentry Fexit Kprobe Tracepoint Uprobe"

virtme=$cache/virtme-ng-$virtme_version
kernel=$cache/linux-$kernel_series

# The exit status of boot.sh if the machine ended before the command (EX_TEMPFAIL in sysexits.h).
machine_ended=75
