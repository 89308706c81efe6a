#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# Checks that this machine has what a target needs, before the target changes anything. One message lists
# everything that is missing. The script changes nothing, and only runs what it checks.
#
# usage: needs.sh engine|rootful|buildkit|go|kubectl|root|apt|rust|cgroup|disk …
#
# CONTAINER_ENGINE is the selected engine, KUBECTL the kubectl, and DAEMON the daemon that Rust builds.
set -euo pipefail

missing=()

# major prints the major number of a version such as "v1.31.2".
major() { [[ $1 =~ ([0-9]+)\. ]] && echo "${BASH_REMATCH[1]}" || echo 0; }

# engine_running prints the engine to use: the selected one, or else docker or podman, if it responds.
engine_running() {
	local engine
	for engine in ${CONTAINER_ENGINE:-docker podman}; do
		if command -v "$engine" >/dev/null && "$engine" info >/dev/null 2>&1; then
			echo "$engine"
			return
		fi
	done
}

need_engine() {
	local engine installed=()
	[[ -z $(engine_running) ]] || return 0
	for engine in ${CONTAINER_ENGINE:-docker podman}; do
		! command -v "$engine" >/dev/null || installed+=("$engine")
	done
	if ((${#installed[@]})); then
		missing+=("a container engine that runs: ${installed[*]} is installed, but \"${installed[0]} info\" fails; start it, or use an account that may use it")
	else
		missing+=("a container engine, Docker or Podman (make build cluster-load builds the images for the one-node cluster without one)")
	fi
}

# In a user namespace, as that of a rootless engine, the kernel loads no programs for the daemon.
need_rootful() {
	local engine info
	engine=$(engine_running)
	[[ -n $engine ]] || return 0
	info=$("$engine" info --format '{{json .}}' 2>/dev/null) || info=
	if [[ $info =~ \"name=rootless|\"rootless\":\ *true ]]; then
		missing+=("an engine that isn't rootless: ${engine##*/} is, so eBPF programs can't be loaded in its containers; use one that runs as root (with Podman, run this target as root)")
	fi
}

# Docker's legacy builder doesn't set the platforms for which the Dockerfile builds. Up to Docker 20.10, BuildKit
# is part of the client. Since 23, it comes with the plugin buildx. Podman has its own builder.
need_buildkit() {
	local engine version
	engine=$(engine_running)
	# Docker has its plugins even if it doesn't run. If Podman is installed too, you can start that instead.
	[[ -n $engine ]] || engine=$(for engine in ${CONTAINER_ENGINE:-podman docker}; do command -v "$engine" && break; done) || true
	[[ -n $engine && ${engine##*/} == docker ]] || return 0
	! "$engine" buildx version >/dev/null 2>&1 || return 0
	# Without the daemon, this prints the version, and fails.
	version=$("$engine" version --format '{{.Client.Version}}' 2>/dev/null) || version=${version:-unknown}
	if [[ $(major "$version") == 0 ]] || (($(major "$version") >= 23)); then
		missing+=("BuildKit: Docker $version takes it from the plugin buildx, which isn't installed (Debian and Ubuntu: docker-buildx or docker-buildx-plugin; https://docs.docker.com/go/buildx/)")
	fi
}

# Since 1.21, Go downloads the version that the modules require.
need_go() {
	local version
	version=$(go version 2>/dev/null) || version=
	if [[ ! $version =~ go1\.([0-9]+) ]]; then
		missing+=("Go 1.21 or later: https://go.dev/doc/install")
	elif ((BASH_REMATCH[1] < 21)); then
		missing+=("Go 1.21 or later, not ${version#go version }: https://go.dev/doc/install")
	fi
}

# "kubectl wait --for=create" exists since 1.31.
need_kubectl() {
	local version
	version=$("${KUBECTL:-kubectl}" version --client 2>/dev/null) || version=
	if [[ ! $version =~ v1\.([0-9]+) ]]; then
		missing+=("kubectl 1.31 or later: https://kubernetes.io/docs/tasks/tools/")
	elif ((BASH_REMATCH[1] < 31)); then
		missing+=("kubectl 1.31 or later, not ${BASH_REMATCH[0]}: https://kubernetes.io/docs/tasks/tools/")
	fi
}

# Root in a container often can't mount file systems, which starting a node takes.
need_root() {
	local capabilities
	if [[ $(id -u 2>/dev/null) != 0 ]]; then
		missing+=("root access: run it as root")
		return
	fi
	capabilities=$(sed -n 's/^CapEff:[[:space:]]*//p' "${STATUS:-/proc/self/status}")
	((0x${capabilities:-0} & 1 << 21)) || missing+=("the capability SYS_ADMIN: in a container, use a privileged one, or a machine of its own")
}

# The kubelet and the container runtime put pods into control groups.
need_cgroup() {
	grep -qE ' - cgroup2? ' "${MOUNTS:-/proc/self/mountinfo}" 2>/dev/null ||
		missing+=("a control group file system: mount -t cgroup2 cgroup2 /sys/fs/cgroup")
}

# The first build downloads and compiles Kubernetes and the daemon.
need_disk() {
	local directory gigabytes=2 free
	[[ -x ${DAEMON:-} ]] || gigabytes=8
	for directory in "${HOME:-/root}" /var/lib; do
		free=$(df --output=avail -k "$directory" 2>/dev/null | tail -n 1) || continue
		((free >= gigabytes * 1024 * 1024)) || missing+=("$gigabytes GiB of free disk space in $directory, which has $((free / 1024)) MiB: delete files, or set HOME to another disk")
	done
}

# Missing packages are installed.
need_apt() {
	command -v apt-get >/dev/null || missing+=("Debian 12, for its packages: on another system, use make run-on-kind, or KUBECONFIG=… for a cluster of yours")
}

# The daemon is a crate, which is built once. Debian 12's own Rust is too old for it.
need_rust() {
	local version
	[[ ! -x ${DAEMON:-} ]] || return 0
	version=$(cargo --version 2>/dev/null) || version=
	if [[ ! $version =~ cargo\ 1\.([0-9]+) ]]; then
		missing+=("Rust 1.85 or later: https://rustup.rs")
	elif ((BASH_REMATCH[1] < 85)); then
		missing+=("Rust 1.85 or later, not ${BASH_REMATCH[0]}: https://rustup.rs")
	fi
}

for what in "$@"; do
	case $what in
	engine | rootful | buildkit | go | kubectl | root | apt | rust | cgroup | disk) "need_$what" ;;
	*)
		echo "usage: needs.sh engine|rootful|buildkit|go|kubectl|root|apt|rust|cgroup|disk …" >&2
		exit 2
		;;
	esac
done
if ((${#missing[@]})); then
	{
		echo "nothing was changed: this machine lacks"
		printf '  - %s\n' "${missing[@]}"
	} >&2
	exit 1
fi
