#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# The tests of `make test-kernel`; it runs inside the virtual machine. First the
# daemon by itself: every example program, and chains of them. Then a whole
# node: the one-node cluster with bpfman, and an object of every kind on it.
set -euo pipefail
: "${LOCALBIN:?run this as: make test-kernel}" "${DAEMON:?}" "${KUBERNETES:?}"
cd "$(dirname "$0")/../.."

# In memory, as all that is written here; overlayfs, which containers take, can't be on an overlay.
state=/run/bpfman-cluster
export HOME=/tmp KUBECONFIG=/tmp/kubeconfig
cluster=("$LOCALBIN/cluster" --state-dir "$state" --kubernetes "$KUBERNETES" --daemon "$DAEMON" --bin "$LOCALBIN" --kubeconfig "$KUBECONFIG" --timeout 10m)

step() { printf '\n=== %s (%d s)\n' "$1" "$SECONDS"; }

# in_package runs a test binary where its package is, as go test does.
in_package() {
	local package=$1
	shift
	(cd "tests/$package" && "$LOCALBIN/kernel/$package.test" -test.count=1 "$@")
}

step "the daemon"
failed=0
BPFMAN_RPC=$DAEMON BPFMAN_BIN=$LOCALBIN in_package bytecode -test.v || failed=1

step "a node"
"${cluster[@]}" up
"$LOCALBIN/bytecode-images" --objects "$LOCALBIN/bytecode" --push 10.97.0.2:5000 --prefix bpfman-bytecode \
	--alias xdp_pass_private=xdp_pass --ca "$state/pki/registry-ca.crt"

step "bpfman on it"
make --no-print-directory deploy DEPLOY=config/one-node DEPLOY_TIMEOUT=300s "KUBECTL=$LOCALBIN/kubectl"

step "every kind of program, and chains of them"
E2E_REQUIRE_ALL_TYPES=1 E2E_PATIENCE=5m in_package e2e -test.v -test.run '^Test(EveryKind|Chains|FullDispatcher)$' -test.parallel 16 || failed=1

step "the node's end"
"${cluster[@]}" down
exit $failed
