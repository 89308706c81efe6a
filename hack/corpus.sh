#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# `make test-corpus`: download Debian's packages with eBPF objects that others wrote to a directory, and unpack them.
set -euo pipefail
directory=${1:?run this as: make test-corpus}

packages=(libbpf-tools libxdp1 xdp-tools xdp-tests pcp ir-keytable)
mkdir -p "$directory"
cd "$directory"
for package in "${packages[@]}"; do
	[[ ! -d $package ]] || continue
	apt-get download -qq -o APT::Sandbox::User=root "$package"
	dpkg-deb -x "$package"_*.deb "$package.new"
	rm -- "$package"_*.deb
	mv -- "$package.new" "$package"
done
