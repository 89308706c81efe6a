#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# Runs a command beside a container engine that is there for that command alone: dockerd, in mount, network and process
# namespaces of its own. Nothing of this machine changes, neither its interfaces nor its packet filter, and all of it ends
# with the command. There is no network but loopback, so the engine pulls nothing.
#
# usage: engine.sh DOCKER RUNTIME STATE COMMAND… — DOCKER has Docker's programs, RUNTIME is hack/cluster/ociruntime, and STATE
# a directory that this makes and removes.
set -euo pipefail

# Below this, in each hierarchy, are the cgroups of all containers.
cgroup=bpfman-kind
start_timeout=60

hierarchies() { awk '$3 ~ /^cgroup/ { print $2 }' /proc/mounts; }

# outside makes the namespaces, and removes what doesn't end with them.
outside() {
	local state=$3 status=0 point
	if ! mkdir "$state" 2>/dev/null; then
		echo "engine.sh: $state exists: another engine runs, or was killed; remove it if none does" >&2
		return 1
	fi
	for point in $(hierarchies); do
		mkdir -p "$point/$cgroup"
	done
	trap '' INT TERM # The command gets them too, and this has to clean up after it.
	unshare --mount --net --pid --fork --kill-child --mount-proc "$0" --inside "$@" || status=$?
	for point in $(hierarchies); do
		find "$point/$cgroup" -depth -type d -exec rmdir {} + || status=1
	done
	rm -rf "$state"
	return "$status"
}

# inside is the first process of the process namespace.
inside() {
	local docker=$1 runtime=$2 state=$3 waited=0
	shift 3
	trap - INT TERM
	mount -t tmpfs -o mode=755 run /run
	mount -t bpf bpf /sys/fs/bpf
	mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug
	mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing
	# The kubelet of a node has mounts of pods be seen by others.
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
