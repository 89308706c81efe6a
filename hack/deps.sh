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
kubernetes_version=v1.36.3

# What to look for, and the package that contains it. The script looks for commands
# instead of packages if several packages contain the command: Debian's containerd must
# not replace Docker's containerd.io.
packages=(
	containerd:containerd ctr:containerd runc:runc nft:nftables
	clang:clang llvm-strip:llvm gcc:gcc pkg-config:pkg-config ip:iproute2 make:make bpftool:bpftool
	/usr/lib/cni/bridge:containernetworking-plugins
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

install_kubernetes() {
	local root=$cache/kubernetes-$kubernetes_version source name version
	# The sources of the build, because the version alone doesn't identify it.
	source=$(cat "$here"/kubernetes/{main.go,go.mod,go.sum} | sha256sum)
	if [[ ! -x $root/kubernetes || $(cat "$root/source" 2>/dev/null) != "$source" ]]; then
		mkdir -p "$root"
		version=k8s.io/component-base/version
		GOWORK=off CGO_ENABLED=0 slow "building Kubernetes $kubernetes_version (about 5 minutes on 2 cores)" \
			go -C "$here/kubernetes" build -trimpath -o "$root/kubernetes.new" -ldflags "-s -w \
				-X $version.gitVersion=$kubernetes_version -X $version.gitTreeState=clean \
				-X $version.gitMajor=1 -X $version.gitMinor=$(cut -d. -f2 <<<"$kubernetes_version")" .
		mv "$root/kubernetes.new" "$root/kubernetes"
		echo "$source" >"$root/source"
	fi
	# The names that envtest expects.
	for name in etcd kube-apiserver kubectl; do
		[[ -L $root/$name ]] || ln -s kubernetes "$root/$name"
	done
	mkdir -p "$bin"
	[[ $(readlink "$bin/kubectl") == "$root/kubectl" ]] || ln -sf "$root/kubectl" "$bin/kubectl"
}

for tool in go cargo; do
	command -v "$tool" >/dev/null || { echo "$tool is needed: see https://go.dev/doc/install and https://rustup.rs" >&2; exit 1; }
done
install_packages
install_daemon
install_kubernetes
