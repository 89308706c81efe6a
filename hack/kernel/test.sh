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
[[ -z $other ]] || files+=("$other" "$LOCALBIN"/{kernel/contract.test,kernel/bytecodesource.test,bpfman-reader} "${KUBERNETES%/*}"/{kube-apiserver,etcd})

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
	on_machine hack/kernel/boot.sh "${files[@]/#/--copy=}" "$cache" "$memory" \
		env TEST_REQUIRES="$kernel_can bytecode daemon" BPFMAN_RPC="$DAEMON" BPFMAN_BIN="$LOCALBIN" HOME=/tmp \
		hack/kernel/suites.sh "$LOCALBIN/kernel" "$(dirname "${KUBERNETES:-none}")" "$other" || status=$?
	;;
node) on_machine hack/kernel/node.sh alone "$cache" "$memory" "$instance" || status=$? ;;
mixed) on_machine hack/kernel/node.sh among "$cache" "$memory" "$instance" || status=$? ;;
*) echo "test.sh: neither daemon, node, nor mixed: $what" >&2 && exit 2 ;;
esac
section "the end"
exit $status
