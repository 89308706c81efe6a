#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# Runs tests on a kind cluster that it creates and deletes. If there is no container engine, it starts Debian's
# temporarily (engine.sh). If kind's image can't be pulled, it builds one (node-image.sh), and serves the example
# programs itself. Both need root and Debian 12.
#
# usage: test.sh test-e2e|test-tutorials, as make test-kind or make test-tutorials-kind
set -euo pipefail
tests=${1:?run this as: make test-kind, or make test-tutorials-kind}
: "${LOCALBIN:?}" "${CACHE:?}" "${KUBERNETES:?}" "${DAEMON:?}" "${KIND:?}" "${KIND_FILES:?}" "${KUBECTL:?}"
cache=$CACHE
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
# shellcheck source=hack/progress.sh
. hack/progress.sh
# shellcheck source=hack/kind/versions.sh
. "$here/versions.sh"

cluster=bpfman-test
engine_state=/var/lib/bpfman-kind
step() { make --no-print-directory "$@"; }

# build_offline builds and downloads everything that is needed before the network is unavailable.
build_offline() {
	step deps build build-cluster build-kubeadm kubectl-bpfman bytecode
	"$here/deps.sh" "$cache"
	go -C examples build -o /dev/null ./cmd/bytecode-images
	case $tests in
	test-e2e)
		step cosign
		KUBECONFIG='' TEST_REQUIRES='' go -C tests test -run '^$' ./e2e
		;;
	test-tutorials)
		step cosign prometheus promtool
		KUBECONFIG='' TEST_REQUIRES='' go -C tests test -run '^$' ./tutorials
		! command -v rustup >/dev/null || { step bpf-linker && fetch_crates; }
		;;
	esac
}

# fetch_crates downloads the crates of the tutorial in Rust, from the files that its reader saves.
fetch_crates() (
	set -e
	directory=$(mktemp -d)
	trap 'rm -rf "$directory"' EXIT
	mkdir "$directory"/{.cargo,src}
	awk -v directory="$directory" '
		file && /^```/ { file = "" }
		file { print >file }
		match($0, /^```(toml|rust) title="[^"]+"/) { split($0, parts, "\""); file = directory "/" parts[2] }
	' docs/tutorials/program-in-rust.md
	cd "$directory"
	cargo fetch
)

# run_tests runs the tests on the cluster, where test-e2e deploys bpfman itself.
run_tests() {
	case $tests in
	test-tutorials) step deploy "$@" ;;
	esac
	step "$tests" "$@"
}

engine() { "${CONTAINER_ENGINE:-docker}" "$@"; }

# pulls reports whether the engine has kind's default node image, or can pull it.
pulls() {
	local image
	image=$(sed -n 's/^const Image = "\(.*\)"/\1/p' "$KIND_FILES/pkg/apis/config/defaults/image.go")
	engine image inspect "$image" >/dev/null 2>&1 || engine pull "$image"
}

work=
end() {
	local status=$?
	trap - EXIT
	if [[ -n $work ]]; then
		((status == 0)) || explain
		[[ -z ${registry:-} ]] || { kill "$registry" 2>/dev/null && wait "$registry"; } || true
		"$KIND" delete cluster --name "$cluster" || status=1
		rm -rf "$work"
	fi
	exit "$status"
}

# explain prints information about a failure from the node.
explain() {
	echo "==== the node"
	engine exec "$cluster-control-plane" journalctl --no-pager -n 40 -p err 2>/dev/null || true
	"$KUBECTL" get pods -A -o wide 2>/dev/null || true
}

# on_engine runs the tests with a running engine.
on_engine() {
	if "$KIND" get clusters 2>/dev/null | grep -qx "$cluster"; then
		echo "there is a kind cluster $cluster already: a run was killed, or is there; delete it with: $KIND delete cluster --name $cluster" >&2
		return 1
	fi
	trap end EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	work=$(mktemp -d)
	export KUBECONFIG=$work/kubeconfig
	if [[ ${NO_NETWORK:-} != yes ]] && pulls; then
		published
	else
		[[ ${NO_NETWORK:-} == yes ]] || build_offline
		offline
	fi
}

published() {
	section "kind with its published image"
	step setup-kind "KIND_CLUSTER_NAME=$cluster"
	step build-images load-images-kind "KIND_CLUSTER_NAME=$cluster"
	section "$tests"
	run_tests IMAGES_LOADED=yes
}

offline() {
	local gateway bridge
	section "an image of a kind node"
	"$here/node-image.sh" "$cache" "$KUBERNETES" "$LOCALBIN"
	section "kind with that image"
	"$KIND" create cluster --name "$cluster" --image "$node_image" --config "$here/offline.yaml" --wait 5m --retain
	gateway=$(engine network inspect kind --format '{{range .IPAM.Config}}{{println .Gateway}}{{end}}' | grep -F . | head -n 1)

	section "images, and a registry as quay.io"
	"$LOCALBIN/offline" --names "quay.io,$gateway,127.0.0.1" certificates "$work"
	"$LOCALBIN/offline" registry "$work" &
	registry=$!
	engine exec "$cluster-control-plane" sh -c "echo '$gateway quay.io' >>/etc/hosts"
	"$LOCALBIN/offline" --bin "$LOCALBIN" --daemon "$DAEMON" --ca "$work/registry-ca.crt" images "$work/images.tar"
	"$KIND" load image-archive --name "$cluster" "$work/images.tar"
	rm "$work/images.tar"
	step push-bytecode "BYTECODE_REGISTRY=127.0.0.1:5000" "BYTECODE_PUSH_FLAGS=--ca $work/registry-ca.crt"

	section "$tests"
	BYTECODE_PUSH=$gateway:5000 BYTECODE_PUSH_CA=$work/registry-ca.crt SAMPLE_APP_IMG=${UPROBED_IMG:-} \
		TUTORIALS_REGISTRY=$gateway:5000/tutorials TUTORIALS_REGISTRY_CA=$work/registry-ca.crt CARGO_NET_OFFLINE=true \
		run_tests IMAGES_LOADED=yes DEPLOY=config/one-node
}

if [[ ${2:-} == --on-engine ]]; then
	on_engine
elif engine info >/dev/null 2>&1; then
	on_engine
else
	((EUID == 0)) || { hack/needs.sh engine; exit 1; }
	build_offline
	NO_NETWORK=yes CONTAINER_ENGINE=docker exec "$here/engine.sh" "$docker/usr" "$LOCALBIN/ociruntime" "$engine_state" "$here/test.sh" "$tests" --on-engine
fi
