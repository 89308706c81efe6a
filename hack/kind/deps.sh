#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# Downloads what `make test-kind` needs on Debian 12 without a container engine: Debian's Docker, and the root file
# system of a node. Both are unpacked into the cache, not installed, so this machine doesn't change. Prints what it
# downloads, and nothing if everything is there.
#
# usage: deps.sh CACHE
set -euo pipefail
cache=${1:?}
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=hack/progress.sh
. "$here/../progress.sh"
# shellcheck source=hack/kind/versions.sh
. "$here/versions.sh"
((EUID == 0)) || { echo "deps.sh: root access is required, to create a root file system" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# unpack PACKAGE… DIRECTORY unpacks Debian packages without installing them.
unpack() (
	set -e
	directory=${*: -1}
	mkdir -p "$work/packages"
	chmod 755 "$work" "$work/packages"
	cd "$work/packages"
	for package in "${@:1:$#-1}"; do
		apt-get download -o APT::Sandbox::User= "$package"
		dpkg-deb --extract "$package"_*.deb "$directory"
	done
)

fetch_docker() (
	set -e
	rm -rf "$docker.new"
	unpack docker.io tini "$docker.new"
	mv "$docker.new" "$docker"
)

fetch_node() (
	set -e
	rm -rf "$node_root.new"
	unpack debootstrap "$work/debootstrap"
	mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Codename: $suite" 'Component: main' | head -n 1)
	[[ -n $mirror ]] || { echo "apt has no source of Debian's $suite"; exit 1; }
	# Its mounts end with the namespace.
	DEBOOTSTRAP_DIR=$work/debootstrap/usr/share/debootstrap unshare --mount \
		"$work/debootstrap/usr/sbin/debootstrap" --variant=minbase --include="$node_packages" "$suite" "$node_root.new" "$mirror"
	rm -rf "$node_root.new"/var/cache/apt/archives/*.deb "$node_root.new"/var/lib/apt/lists/*
	mv "$node_root.new" "$node_root"
)

mkdir -p "$cache"
[[ -d $docker && -d $node_root ]] || slow "updating the list of Debian packages" apt-get update -q
[[ -d $docker ]] || slow "fetching Debian's Docker" fetch_docker
[[ -d $node_root ]] || slow "making the root file system of a kind node (about 3 minutes)" fetch_node
