#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# Installs what the virtual machine of `make test-kernel` needs in addition to `make deps`, on
# Debian 12: kmod (Debian), qemu (bookworm-backports), virtme-ng (PyPI), and Debian's 6.12
# kernel (bookworm-backports). The kernel is unpacked into the cache, not installed, so this
# machine still boots its own. This machine's apt configuration doesn't change. Prints what it
# installs, and nothing if everything is there.
#
# usage: deps.sh CACHE
set -euo pipefail
cache=${1:?}
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=hack/progress.sh
. "$here/../progress.sh"
# shellcheck source=hack/kernel/versions.sh
. "$here/versions.sh"

# A separate apt configuration, with this machine's sources and bookworm-backports, and its own
# package lists.
apt=$cache/apt
options=(-q -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$apt/sources" -o "Dir::State::lists=$apt/lists"
	-o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=)
trap 'rm -rf "$apt"' EXIT
export DEBIAN_FRONTEND=noninteractive

# missing_packages lists the packages to install, with apt's names.
missing_packages() {
	local version
	version=$({ qemu-system-x86_64 --version 2>/dev/null || true; } | sed -n 's/^QEMU emulator version \([0-9]*\).*/\1/p')
	((${version:-0} >= qemu_oldest)) || echo qemu-system-x86
	{ command -v depmod && command -v modprobe; } >/dev/null || echo kmod
	python3 -c 'import venv, ensurepip' 2>/dev/null || echo python3-venv
}

# The other steps run in subshells, through slow, which shows progress.

update_lists() (
	set -e
	rm -rf "$apt"
	mkdir -p "$apt/lists/partial" "$apt/sources"
	for source in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
		[[ ! -f $source ]] || cp "$source" "$apt/sources"
	done
	apt-get "${options[@]}" update
	mirror=$(apt-get "${options[@]}" indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' 'Component: main' | head -n 1)
	[[ -n $mirror ]] || { echo "apt has no source of Debian 12 (bookworm)"; exit 1; }
	cat >"$apt/sources/backports.sources" <<-END
		Types: deb
		URIs: $mirror
		Suites: bookworm-backports
		Components: main
		Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
	END
	apt-get "${options[@]}" update
)

fetch_virtme() (
	set -e
	python3 -m venv "$virtme.new"
	"$virtme.new/bin/pip" install --disable-pip-version-check -q "virtme-ng==$virtme_version"
	# Scripts contain the path of their interpreter.
	sed -i "1s|$virtme.new|$virtme|" "$virtme.new"/bin/*
	mv "$virtme.new" "$virtme"
)

# fetch_kernel downloads the newest 6.12 kernel.
fetch_kernel() (
	set -e
	rm -rf "$kernel.new"
	mkdir -p "$apt/package" "$kernel.new"
	package=$(apt-cache "${options[@]}" search --names-only "^linux-image-${kernel_series//./\\.}\.[0-9.]+\+deb12(\.[0-9]+)?-amd64\$" |
		cut -d' ' -f1 | sort -V | tail -n 1)
	[[ -n $package ]] || { echo "bookworm-backports has no linux-image-$kernel_series"; exit 1; }
	cd "$apt/package"
	apt-get "${options[@]}" download "$package"
	dpkg-deb --extract "$package"_*.deb "$kernel.new"
	depmod -b "$kernel.new" "$(ls "$kernel.new/lib/modules")"
	mv "$kernel.new" "$kernel"
)

mkdir -p "$cache"
mapfile -t packages < <(missing_packages)
if ((${#packages[@]} && EUID != 0)); then
	echo "missing packages, install them as root: make deps-kernel" >&2
	exit 1
fi
((${#packages[@]} == 0)) && [[ -d $kernel ]] || slow "updating the lists of Debian packages" update_lists
((${#packages[@]} == 0)) || slow "installing Debian packages: ${packages[*]}" apt-get "${options[@]}" install -y --no-install-recommends --target-release bookworm-backports "${packages[@]}"
[[ -x $virtme/bin/vng ]] || slow "installing virtme-ng $virtme_version" fetch_virtme
[[ -d $kernel ]] || slow "fetching Debian's $kernel_series kernel (about 100 MB)" fetch_kernel
# Inside the machine, modules are linked there. Its root file system is this machine's,
# read-only.
[[ -d /lib/modules ]] || mkdir /lib/modules
