#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# Runs a command with a temporary container engine: dockerd, in separate mount, network, and process namespaces.
# This doesn't change this machine's interfaces or packet filter, and everything ends with the command. The engine
# has no network except loopback, so it can't pull images.
#
# usage: engine.sh DOCKER RUNTIME STATE COMMAND… — DOCKER is the directory of Docker's programs, RUNTIME is
# hack/cluster/ociruntime, and STATE is a directory that this script creates and removes.
set -euo pipefail

# The parent of the cgroups of all containers, in each hierarchy.
cgroup=bpfman-kind
start_timeout=60

hierarchies() { awk '$3 ~ /^cgroup/ { print $2 }' /proc/mounts; }

# outside creates the namespaces, and removes what doesn't end with them.
outside() {
	local state=$3 status=0 point
	if ! mkdir "$state" 2>/dev/null; then
		echo "engine.sh: $state exists: another engine runs, or was killed; remove it if none does" >&2
		return 1
	fi
	for point in $(hierarchies); do
		mkdir -p "$point/$cgroup"
	done
	trap : INT TERM # the command also gets them, and this shell has to clean up afterwards
	unshare --mount --net --pid --fork --kill-child --mount-proc "$0" --inside "$@" || status=$?
	for point in $(hierarchies); do
		find "$point/$cgroup" -depth -type d -exec rmdir {} + || status=1
	done
	rm -rf "$state"
	return "$status"
}

# inside runs as the first process in the process namespace.
inside() {
	local docker=$1 runtime=$2 state=$3 waited=0
	shift 3
	trap - INT TERM
	mount -t tmpfs -o mode=755 run /run
	mount -t bpf bpf /sys/fs/bpf
	mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug
	mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing
	# The kubelet of a node requires that mounts are shared.
	mount --make-rshared /
	ip link set lo up
	export PATH=$docker/bin:$docker/sbin:$docker:$PATH DOCKER_HOST=unix:///run/docker.sock
	dockerd --host "$DOCKER_HOST" --data-root "$state/docker" --exec-root /run/docker --pidfile /run/docker.pid \
		--storage-driver overlay2 --cgroup-parent "/$cgroup" --exec-opt native.cgroupdriver=cgroupfs \
		--add-runtime "adapted=$runtime" --default-runtime adapted >"$state/dockerd.log" 2>&1 &
	until docker info >/dev/null 2>&1; do
		if ! kill -0 $! 2>/dev/null || ((waited++ >= start_timeout * 5)); then
			echo "engine.sh: dockerd doesn't start:" >&2
			tail -n 20 "$state/dockerd.log" >&2
			return 1
		fi
		sleep 0.2
	done
	"$@"
}

if [[ ${1:-} == --inside ]]; then
	inside "${@:2}"
else
	(($# >= 4)) || { echo "usage: engine.sh DOCKER RUNTIME STATE COMMAND…" >&2; exit 2; }
	((EUID == 0)) || { echo "engine.sh: root access is required, to create namespaces and mounts" >&2; exit 1; }
	outside "$@"
fi
