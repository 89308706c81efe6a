#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# Runs a Kubernetes node in the virtual machine, and tests of bpfman on it. Its control plane and the tests run on
# this machine, which is many times as fast without KVM. If the machine ends before the tests, the exit status is
# $machine_ended.
#
# usage: node.sh alone|among CACHE MEMORY INSTANCE — INSTANCE is that of the one-node cluster.
#
#   alone  the only node of its cluster: an object of every kind, and chains
#   among  a node that joins two nodes with this machine's kernel: what becomes of one object on each of them
set -euo pipefail
: "${LOCALBIN:?run this as: make test-kernel-node}" "${DAEMON:?}" "${KUBERNETES:?}"
how=${1:?} cache=${2:?} memory=${3:?} instance=${4:?}
cd "$(dirname "$0")/../.."
# shellcheck source=hack/kernel/versions.sh
. hack/kernel/versions.sh
# shellcheck source=hack/progress.sh
. hack/progress.sh

state=/var/lib/bpfman-cluster$instance registry=10.97.$instance.2:5000
export KUBECONFIG=$LOCALBIN/kubeconfig$instance KUBECTL=$LOCALBIN/kubectl
case $how in
alone) number=2 machines=(--control-plane-only) ;;
among) number=3 machines=(--nodes 2) ;;
*) echo "node.sh: neither alone nor among: $how" >&2 && exit 2 ;;
esac
cluster=("$LOCALBIN/cluster" --instance "$instance" --kubernetes "$KUBERNETES" --daemon "$DAEMON" --bin "$LOCALBIN")
here=("${cluster[@]}" "${machines[@]}" --timeout 10m --state-dir "$state" --kubeconfig "$KUBECONFIG")
# Containers can't be on an overlay. This directory is in the virtual machine's memory.
node=("${cluster[@]}" --node "$number" --join "$state" --uplink eth0 --state-dir /run/bpfman-cluster --kubeconfig /run/kubeconfig --timeout 20m)
# The virtual machine reads these often.
files=("$DAEMON" "$KUBERNETES"
	"$LOCALBIN"/{bpfman-operator,bpfman-agent,bpfman-reader,bpfman-csi,bpfman-inspector,bpfman-ns,bpfman-probe,counters,firewall,map-exporter,csi-node-driver-registrar,go-target,node-probe,cluster,pause,daemon-launcher}
	/usr/bin/{containerd,containerd-shim-runc-v2,ctr} /usr/sbin/{runc,nft} /usr/bin/busybox /usr/lib/cni/{ptp,host-local,loopback})
work=$(mktemp -d)
machine='' tests=''

end() {
	local pid
	for pid in $tests $machine; do
		kill "$pid" 2>/dev/null || true
	done
	wait
	rm -rf "$work"
	"${here[@]}" down
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

deploy() {
	section "bpfman on the cluster"
	make --no-print-directory deploy DEPLOY=config/one-node DEPLOY_TIMEOUT=10m IMAGES_LOADED=yes "KUBECTL=$KUBECTL"
}

# start_node boots the machine, which runs until it is killed, and returns when its node has started.
start_node() {
	local tap line=
	section "a node in the virtual machine"
	mkfifo "$work/output"
	tap=$("${here[@]}" --node "$number" tap)
	"${here[@]}" exec-net hack/kernel/boot.sh --tap="$tap" "${files[@]/#/--copy=}" "$cache" "$memory" \
		bash -c '"$@" && echo "the node is up" && exec sleep infinity' bash env HOME=/tmp "${node[@]}" up >"$work/output" 2>&1 &
	machine=$!
	exec {output}<"$work/output"
	while [[ $line != "the node is up" ]]; do
		read -r line <&"$output" || { echo "the virtual machine has no node" >&2; wait "$machine"; exit 1; }
		echo "$line"
	done
	cat <&"$output" &
}

# await_node waits until the node components run on every node.
await_node() {
	"$KUBECTL" wait --for=create "node/bpfman-node-$number" --timeout=20m
	"$KUBECTL" -n bpfman wait --for=jsonpath="{.status.numberReady}=$number" daemonset/bpfman-daemon --timeout=20m
}

# run_tests runs tests of e2e. Each look is a process in the virtual machine, so they look less often.
run_tests() {
	local requires=$1 pattern=$2 status=0 ended=
	env -C tests/e2e TEST_REQUIRES="$requires cluster" E2E_PATIENCE=10m E2E_INTERVAL=2s BYTECODE_PUSH="$registry" BYTECODE_PUSH_CA="$state/pki/registry-ca.crt" \
		"$LOCALBIN/kernel/e2e.test" -test.count=1 -test.v -test.run "$pattern" -test.parallel 5 &
	tests=$!
	wait -n -p ended "$tests" "$machine" || status=$?
	[[ $ended == "$tests" ]] || { echo "the virtual machine ended before the tests" >&2; ((status)) || status=$machine_ended; }
	return "$status"
}

"${here[@]}" up
"$LOCALBIN/bytecode-images" --objects "$LOCALBIN/bytecode" --push "$registry" --prefix bpfman-bytecode \
	--alias xdp_pass_private=xdp_pass --ca "$state/pki/registry-ca.crt" >/dev/null
case $how in
alone)
	start_node
	deploy
	section "every kind of program, chains of them, and a rollback"
	# TCX is chained on any kernel, and the room on a dispatcher is the same.
	run_tests "$kernel_can" '^Test(EveryKind|Chains|FullDispatcher|Rollback)$/^(kind|XDP|TC_ingress|TC_egress)$'
	;;
among)
	# The operator is on this machine, where it is faster.
	deploy
	start_node
	await_node
	section "a program on nodes with different kernels"
	run_tests mixed-kernels '^TestMixedKernels$'
	;;
esac
