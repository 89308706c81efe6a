# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# For the scripts here to source: what the virtual machine is made of. Needs $cache.
# shellcheck shell=bash disable=SC2034
virtme_version=1.42
kernel_series=6.12
# QEMU 7.2, Debian 12's own, runs stale instructions where the guest's kernel patches its code, as attaching a program
# does: with packets coming in, "Oops: int3" within three minutes of attaching XDP, 3 times in 3; 10.0.2 never in 1052.
qemu_oldest=10

# What this kernel can do, of apis/prerequisite: a test that lacks it fails.
kernel_can="root bpf XDP TC TCX Fentry Fexit Kprobe Tracepoint Uprobe"

virtme=$cache/virtme-ng-$virtme_version
kernel=$cache/linux-$kernel_series

# boot.sh's exit status where the machine ended before the command did (EX_TEMPFAIL of sysexits.h).
machine_ended=75
