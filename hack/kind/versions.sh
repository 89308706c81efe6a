# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# What is built if nothing can be pulled, for the scripts here to source. Needs $cache.
# shellcheck shell=bash disable=SC2034

# The Debian release that deps.sh is for.
suite=bookworm
node_packages=systemd,systemd-sysv,dbus,conntrack,iptables,nftables,ebtables,iproute2,ethtool,util-linux,mount,kmod,procps,hostname,socat,openssl,ca-certificates,curl,jq,containerd,runc,containernetworking-plugins

docker=$cache/docker-debian-$suite
node_root=$cache/kind-node-$suite
node_image=bpfman.test/kind-node:local
