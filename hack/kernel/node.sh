#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# Runs a whole Kubernetes node in the virtual machine, with bpfman and an object of every kind. Its control plane
# and the tests run on this machine, which is many times as fast without KVM. If the machine ends before the
# tests, the exit status is $machine_ended.
#
# usage: node.sh CACHE MEMORY INSTANCE — INSTANCE is that of the one-node cluster.
set -euo pipefail
: "${LOCALBIN:?run this as: make test-kernel-node}" "${DAEMON:?}" "${KUBERNETES:?}"
cache=${1:?} memory=${2:?} instance=${3:?}
cd "$(dirname "$0")/../.."
# shellcheck source=hack/kernel/versions.sh
. hack/kernel/versions.sh
# shellcheck source=hack/progress.sh
. hack/progress.sh

state=/var/lib/bpfman-cluster$instance registry=10.97.$instance.2:5000
export KUBECONFIG=$LOCALBIN/kubeconfig$instance
cluster=("$LOCALBIN/cluster" --instance "$instance" --kubernetes "$KUBERNETES" --daemon "$DAEMON" --bin "$LOCALBIN")
control_plane=("${cluster[@]}" --control-plane-only --state-dir "$state" --kubeconfig "$KUBECONFIG")
# Containers can't be on an overlay. This directory is in the virtual machine's memory.
node=("${cluster[@]}" --node 2 --join "$state" --uplink eth0 --state-dir /run/bpfman-cluster --kubeconfig /run/kubeconfig --timeout 10m)
# The virtual machine reads these often.
files=("$DAEMON" "$KUBERNETES"
	"$LOCALBIN"/{bpfman-operator,bpfman-agent,bpfman-csi,bpfman-ns,counters,map-exporter,csi-node-driver-registrar,go-target,node-probe,cluster,pause,daemon-launcher}
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
	"${control_plane[@]}" down
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

"${control_plane[@]}" up
"$LOCALBIN/bytecode-images" --objects "$LOCALBIN/bytecode" --push "$registry" --prefix bpfman-bytecode \
	--alias xdp_pass_private=xdp_pass --ca "$state/pki/registry-ca.crt" >/dev/null
# It stays until it is killed.
mkfifo "$work/output"
tap=$("${control_plane[@]}" --node 2 tap)
"${control_plane[@]}" exec-net hack/kernel/boot.sh --tap="$tap" "${files[@]/#/--copy=}" "$cache" "$memory" \
	bash -c '"$@" && echo "the node is up" && exec sleep infinity' bash env HOME=/tmp "${node[@]}" up >"$work/output" 2>&1 &
machine=$!
exec {output}<"$work/output"
line=
while [[ $line != "the node is up" ]]; do
	read -r line <&"$output" || { echo "the virtual machine has no node" >&2; wait "$machine"; exit 1; }
	echo "$line"
done
cat <&"$output" &

section "bpfman on the node"
make --no-print-directory deploy DEPLOY=config/one-node DEPLOY_TIMEOUT=10m IMAGES_LOADED=yes "KUBECTL=$LOCALBIN/kubectl"

# Each check starts a process in the virtual machine. TCX chains and the limit of a dispatcher don't depend on the
# kernel.
section "every kind of program, and chains of them"
env -C tests/e2e TEST_REQUIRES="$kernel_can cluster" E2E_PATIENCE=5m E2E_INTERVAL=2s BYTECODE_PUSH="$registry" BYTECODE_PUSH_CA="$state/pki/registry-ca.crt" \
	"$LOCALBIN/kernel/e2e.test" -test.count=1 -test.v -test.run '^Test(EveryKind|Chains|FullDispatcher)$/^(kind|XDP|TC_ingress|TC_egress)$' -test.parallel 5 &
tests=$!
status=0 ended=
wait -n -p ended "$tests" "$machine" || status=$?
[[ $ended == "$tests" ]] || { echo "the tests have no machine any more" >&2; ((status)) || status=$machine_ended; }
exit "$status"
