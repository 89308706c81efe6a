#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# Runs tests in the virtual machine. For the daemon alone (make test-kernel): every example program, and chains of
# them, and that the inspector finds all of them; with OTHER_DAEMON, the path of a daemon in Go, also the contract with
# it, and that LSM programs deny operations while their objects exist. For a whole node (make test-kernel-node): an
# object of every kind. For a node among others, which have this machine's kernel (make test-mixed-kernels): one object
# on all of them.
#
# usage: test.sh daemon|node|mixed CACHE MEMORY INSTANCE — INSTANCE is that of the one-node cluster.
set -euo pipefail
: "${LOCALBIN:?run this as: make test-kernel}" "${DAEMON:?}"
what=${1:?} cache=${2:?} memory=${3:?} instance=${4:?}
cd "$(dirname "$0")/../.."
# shellcheck source=hack/kernel/versions.sh
. hack/kernel/versions.sh
# shellcheck source=hack/progress.sh
. hack/progress.sh

# The virtual machine reads these often.
files=("$DAEMON" "$LOCALBIN"/{kernel/bytecode.test,kernel/inspector.test,go-target,bytecode})
other=${OTHER_DAEMON:+$(realpath "$OTHER_DAEMON")}
[[ -z $other ]] || files+=("$other" "$LOCALBIN"/{kernel/contract.test,kernel/bytecodesource.test,bpfman-reader} "$KUBERNETES"/{kube-apiserver,etcd})

running=

# end stops what is still running, because a shell that a signal ends leaves its children.
end() {
	[[ -z $running ]] || { kill "$running" 2>/dev/null && wait; } || true
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

run() {
	local status=0
	"$@" &
	running=$!
	wait "$running" || status=$?
	running=
	return "$status"
}

# on_machine runs a command that needs a virtual machine, and repeats it once if the machine ended early, because
# that isn't a test result.
on_machine() {
	local status=0
	run "$@" || status=$?
	((status == machine_ended)) || return "$status"
	section "the virtual machine ended by itself: once more"
	run "$@"
}

status=0
section "the $what"
case $what in
daemon)
	# Both in one machine: it takes a minute to boot.
	# shellcheck disable=SC2016 # the machine's shell expands them
	on_machine hack/kernel/boot.sh "${files[@]/#/--copy=}" "$cache" "$memory" \
		env TEST_REQUIRES="$kernel_can bytecode daemon" BPFMAN_RPC="$DAEMON" BPFMAN_BIN="$LOCALBIN" HOME=/tmp \
		bash -c 'status=0
			for suite in bytecode inspector; do
				echo "=== the tests of $suite"
				(cd "tests/$suite" && "$0/$suite.test" -test.count=1 -test.v) || status=$?
			done
			if [[ -n $1 ]]; then
				echo "=== the other daemon"
				export TEST_REQUIRES="$TEST_REQUIRES LSM envtest commands" BPFMAN_RPC=$1 KUBEBUILDER_ASSETS=$2 KUBEBUILDER_CONTROLPLANE_START_TIMEOUT=10m
				(cd tests/contract && "$0/contract.test" -test.count=1 -test.v) || status=$?
				# The API server needs an address and a route.
				modprobe dummy && ip link add dummy0 type dummy && ip address add 192.0.2.1/24 dev dummy0 && ip link set dummy0 up && ip route add default dev dummy0
				(cd tests/bytecodesource && "$0/bytecodesource.test" -test.count=1 -test.v -test.run "^TestLSM") || status=$?
			fi
			exit "$status"' "$LOCALBIN/kernel" "$other" "$KUBERNETES" || status=$?
	;;
node) on_machine hack/kernel/node.sh alone "$cache" "$memory" "$instance" || status=$? ;;
mixed) on_machine hack/kernel/node.sh among "$cache" "$memory" "$instance" || status=$? ;;
*) echo "test.sh: neither daemon, node, nor mixed: $what" >&2 && exit 2 ;;
esac
section "the end"
exit $status
