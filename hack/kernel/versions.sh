# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# For the scripts here to source: what the virtual machine is made of. Needs $cache.
# shellcheck shell=bash disable=SC2034
virtme_version=1.42
kernel_series=6.12

virtme=$cache/virtme-ng-$virtme_version
kernel=$cache/linux-$kernel_series
