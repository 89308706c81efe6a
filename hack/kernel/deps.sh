#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# Installs what the virtual machine of `make test-kernel` takes, besides what
# `make deps` does, on this Debian 12: qemu and kmod (Debian), virtme-ng (PyPI),
# and Debian's 6.12 kernel of bookworm-backports. The kernel is unpacked into
# the cache, not installed: this machine goes on booting its own, and its apt
# knows nothing of the other suite. Says what it installs; says nothing where
# nothing is missing.
#
# usage: deps.sh CACHE
set -euo pipefail
cache=${1:?}
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=hack/progress.sh
. "$here/../progress.sh"
# shellcheck source=hack/kernel/versions.sh
. "$here/versions.sh"

# What is looked for, and the package that has it.
packages=(qemu-system-x86_64:qemu-system-x86 depmod:kmod modprobe:kmod)

# packages_of lists the packages that are missing.
missing_packages() {
	local want
	for want in "${packages[@]}"; do
		command -v "${want%%:*}" >/dev/null || echo "${want#*:}"
	done
	python3 -c 'import venv, ensurepip' 2>/dev/null || echo python3-venv
}

install_packages() {
	local missing
	mapfile -t missing < <(missing_packages | sort -u)
	((${#missing[@]})) || return 0
	if ((EUID != 0)); then
		echo "missing packages, install them as root: apt-get install ${missing[*]}" >&2
		return 1
	fi
	export DEBIAN_FRONTEND=noninteractive
	slow "updating the list of Debian packages" apt-get update -q
	slow "installing Debian packages: ${missing[*]}" apt-get install -qy --no-install-recommends "${missing[@]}"
}

# The two below run in a subshell each: they are given to slow, which shows
# that they go on.

fetch_virtme() (
	set -e
	python3 -m venv "$virtme.new"
	"$virtme.new/bin/pip" install --disable-pip-version-check -q "virtme-ng==$virtme_version"
	# Scripts name their interpreter by its path.
	sed -i "1s|$virtme.new|$virtme|" "$virtme.new"/bin/*
	mv "$virtme.new" "$virtme"
)

# fetch_kernel downloads the newest 6.12 kernel with an apt configuration of its
# own, from where this machine has its Debian packages.
fetch_kernel() (
	set -e
	apt=$kernel.apt new=$kernel.new
	rm -rf "$apt" "$new"
	mkdir -p "$apt/lists/partial" "$apt/sources" "$new"
	mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' 'Component: main' | head -n 1)
	[[ -n $mirror ]] || { echo "apt has no source of Debian 12 (bookworm)"; exit 1; }
	cat >"$apt/sources/backports.sources" <<-END
		Types: deb
		URIs: $mirror
		Suites: bookworm-backports
		Components: main
		Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
	END
	options=(-o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$apt/sources" -o "Dir::State::lists=$apt/lists"
		-o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=)
	apt-get "${options[@]}" update
	package=$(apt-cache "${options[@]}" search --names-only "^linux-image-${kernel_series//./\\.}\.[0-9.]+\+deb12(\.[0-9]+)?-amd64\$" |
		cut -d' ' -f1 | sort -V | tail -n 1)
	[[ -n $package ]] || { echo "bookworm-backports has no linux-image-$kernel_series"; exit 1; }
	cd "$apt"
	apt-get "${options[@]}" download "$package"
	dpkg-deb --extract "$package"_*.deb "$new"
	depmod -b "$new" "$(ls "$new/lib/modules")"
	rm -rf "$apt"
	mv "$new" "$kernel"
)

install_packages
mkdir -p "$cache"
[[ -x $virtme/bin/vng ]] || slow "installing virtme-ng $virtme_version" fetch_virtme
[[ -d $kernel ]] || slow "fetching Debian's $kernel_series kernel (about 100 MB)" fetch_kernel
# Modules are linked there inside the machine, whose root file system is this one's, read-only.
[[ -d /lib/modules ]] || mkdir /lib/modules
