# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# Installs Debian's packages, for scripts to source after progress.sh.

# install_missing PACKAGE… installs packages of this machine's Debian. Without root, it lists them
# instead.
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
