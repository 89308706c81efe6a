# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# For the scripts here to source: what is built where nothing can be pulled. Needs $cache.
# shellcheck shell=bash disable=SC2034

# Debian's own, of the distribution that deps.sh is for.
suite=bookworm
node_packages=systemd,systemd-sysv,dbus,conntrack,iptables,nftables,ebtables,iproute2,ethtool,util-linux,mount,kmod,procps,hostname,socat,openssl,ca-certificates,curl,jq,containerd,runc,containernetworking-plugins

docker=$cache/docker-debian-$suite
node_root=$cache/kind-node-$suite
node_image=bpfman.test/kind-node:local
