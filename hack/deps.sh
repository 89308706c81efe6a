#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# Installs what building and running on this machine needs, on Debian 12 with Go and
# Rust: Debian packages, the bpfman daemon (a crate), and Kubernetes (from the Go module
# proxy). Prints what it installs, and nothing if everything is there.
#
# usage: deps.sh CACHE BIN — large builds go to CACHE, the link to kubectl to BIN.
set -euo pipefail
cache=${1:?} bin=${2:?}
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=hack/progress.sh
. "$here/progress.sh"
# shellcheck source=hack/packages.sh
. "$here/packages.sh"

daemon_version=0.6.0

# What to look for, and the package that contains it. The script looks for commands
# instead of packages if several packages contain the command: Debian's containerd must
# not replace Docker's containerd.io.
packages=(
	containerd:containerd ctr:containerd runc:runc nft:nftables
	clang:clang llvm-strip:llvm gcc:gcc pkg-config:pkg-config ip:iproute2 make:make bpftool:bpftool
	/usr/lib/cni/bridge:containernetworking-plugins
	node:nodejs npm:npm
	/etc/ssl/certs/ca-certificates.crt:ca-certificates
	/usr/include/stdio.h:libc6-dev
	/usr/include/bpf/bpf_helpers.h:libbpf-dev
	/usr/include/libelf.h:libelf-dev
	/usr/include/openssl/ssl.h:libssl-dev
	/usr/include/zlib.h:zlib1g-dev
	/usr/share/bash-completion/bash_completion:bash-completion
	=busybox-static:busybox-static
)

install_packages() {
	local missing=() want
	for want in "${packages[@]}"; do
		case $want in
		=*) [[ $(dpkg-query -W -f '${db:Status-Status}' "${want#*:}" 2>/dev/null) == installed ]] || missing+=("${want#*:}") ;;
		/*) [[ -e ${want%%:*} ]] || missing+=("${want#*:}") ;;
		*) command -v "${want%%:*}" >/dev/null || missing+=("${want#*:}") ;;
		esac
	done
	((${#missing[@]})) || return 0
	mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)
	install_missing "${missing[@]}"
}

install_daemon() {
	local root=$cache/bpfman-$daemon_version
	[[ -x $root/bin/bpfman-rpc ]] && return
	# Its build compiles eBPF, which must find asm/types.h.
	C_INCLUDE_PATH=/usr/include/$(gcc -print-multiarch) CARGO_TARGET_DIR=$root/target \
		slow "building the bpfman daemon $daemon_version (about 9 minutes on 2 cores)" \
		cargo install bpfman-api --version "$daemon_version" --locked --root "$root"
	rm -rf "$root/target"
}

for tool in go cargo; do
	command -v "$tool" >/dev/null || { echo "$tool is needed: see https://go.dev/doc/install and https://rustup.rs" >&2; exit 1; }
done
install_packages
install_daemon
"$here/kubernetes/build.sh" "$cache" "$bin"
