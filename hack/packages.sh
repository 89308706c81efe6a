# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# For scripts to source, after progress.sh: what installs Debian's packages.

# install_missing PACKAGE… installs packages of this machine's Debian. Who isn't root is told which.
install_missing() {
	(($#)) || return 0
	if ((EUID != 0)); then
		echo "missing packages, install them as root: apt-get install $*" >&2
		return 1
	fi
	export DEBIAN_FRONTEND=noninteractive
	slow "updating the list of Debian packages" apt-get update -q
	slow "installing Debian packages: $*" apt-get install -qy --no-install-recommends "$@"
}
