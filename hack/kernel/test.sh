#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# The tests of `make test-kernel`. First the daemon by itself in the virtual
# machine: every example program, and chains of them. Then a whole node there,
# with bpfman and an object of every kind on it; its control plane and the tests
# run on this machine, which is many times as fast without KVM.
#
# usage: test.sh CACHE MEMORY INSTANCE — the last is the one-node cluster's.
set -euo pipefail
: "${LOCALBIN:?run this as: make test-kernel}" "${DAEMON:?}" "${KUBERNETES:?}"
cache=${1:?} memory=${2:?} instance=${3:?}
cd "$(dirname "$0")/../.."

state=/var/lib/bpfman-cluster$instance registry=10.97.$instance.2:5000
export KUBECONFIG=$LOCALBIN/kubeconfig$instance
cluster=("$LOCALBIN/cluster" --instance "$instance" --kubernetes "$KUBERNETES" --daemon "$DAEMON" --bin "$LOCALBIN")
control_plane=("${cluster[@]}" --part control-plane --state-dir "$state" --kubeconfig "$KUBECONFIG")
# Containers can't be on an overlay: this is in the virtual machine's memory.
node=("${cluster[@]}" --part node --join "$state" --uplink eth0 --state-dir /run/bpfman-cluster --kubeconfig /run/kubeconfig --timeout 10m)
machine=

end() {
	[[ -z $machine ]] || { kill "$machine" 2>/dev/null && wait; } || true
	"${control_plane[@]}" down
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# copied are what is read a lot in the virtual machine.
copied() {
	local file
	for file in "$@"; do
		[[ ! -e $file ]] || printf -- '--copy\0%s\0' "$(realpath "$file")"
	done
}
mapfile -d '' -t daemon_files < <(copied "$DAEMON" "$LOCALBIN"/{kernel/bytecode.test,go-target,bytecode})
mapfile -d '' -t node_files < <(copied "$DAEMON" "$KUBERNETES" \
	"$LOCALBIN"/{bpfman-operator,bpfman-agent,bpfman-csi,bpfman-ns,counters,csi-node-driver-registrar,go-target,node-probe,cluster,pause,daemon-launcher} \
	/usr/bin/{containerd,containerd-shim-runc-v2,ctr} /usr/sbin/{runc,nft} /usr/bin/busybox /usr/lib/cni/{ptp,host-local,loopback})

step() { printf '\n=== %s (after %d s)\n' "$1" "$SECONDS"; }
failed=0

step "the daemon"
hack/kernel/boot.sh "${daemon_files[@]}" "$cache" "$memory" env -C tests/bytecode BPFMAN_RPC="$DAEMON" BPFMAN_BIN="$LOCALBIN" HOME=/tmp \
	"$LOCALBIN/kernel/bytecode.test" -test.count=1 -test.v || failed=1

step "a node"
"${control_plane[@]}" up
"$LOCALBIN/bytecode-images" --objects "$LOCALBIN/bytecode" --push "$registry" --prefix bpfman-bytecode \
	--alias xdp_pass_private=xdp_pass --ca "$state/pki/registry-ca.crt" >/dev/null
# It stays until it is killed.
exec {output}< <(exec "${control_plane[@]}" exec-net hack/kernel/boot.sh --tap node0 "${node_files[@]}" "$cache" "$memory" \
	bash -c '"$@" && echo "the node is up" && exec sleep infinity' bash env HOME=/tmp "${node[@]}" up 2>&1)
machine=$!
line=
while [[ $line != "the node is up" ]]; do
	read -r line <&"$output" || { echo "the virtual machine has no node" >&2; exit 1; }
	echo "$line"
done
cat <&"$output" &

step "bpfman on it"
make --no-print-directory deploy DEPLOY=config/one-node DEPLOY_TIMEOUT=10m "KUBECTL=$LOCALBIN/kubectl"

# Each look is a process in the virtual machine. TCX is chained on any kernel, and the room on a dispatcher is the same.
step "every kind of program, and chains of them"
env -C tests/e2e E2E_REQUIRE_ALL_TYPES=1 E2E_PATIENCE=5m E2E_INTERVAL=2s BYTECODE_PUSH="$registry" BYTECODE_PUSH_CA="$state/pki/registry-ca.crt" \
	"$LOCALBIN/kernel/e2e.test" -test.count=1 -test.v -test.run '^Test(EveryKind|Chains|FullDispatcher)$/^(kind|XDP|TC_ingress|TC_egress)$' -test.parallel 5 || failed=1
step "the end"
exit $failed
