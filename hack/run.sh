#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# `make run`: from nothing to the counters of an eBPF program, printed by an unprivileged
# pod. It can be run again at any time.
#
# Without KUBECONFIG, it installs what is missing on this machine, and starts the
# one-node cluster. With KUBECONFIG, it uses that cluster, and changes nothing on this
# machine.
set -euo pipefail
: "${KUBECTL:?run this as: make run}" "${CLUSTER_KUBECONFIG:?}"
cd "$(dirname "$0")/.."
# shellcheck source=hack/progress.sh
. hack/progress.sh

readings=3
# The timeout in seconds for each step.
timeout=${RUN_TIMEOUT:-120}
make=(make --no-print-directory)

die() {
	printf '\nmake run: %s\n' "$1" >&2
	shift
	printf '  %s\n' "$@" >&2
	exit 1
}

# step MESSAGE HINT COMMAND… runs a step. If it fails, it exits with the hint.
step() {
	local message=$1 hint=$2
	shift 2
	slow "$message" "$@" || die "failed: $message" "$hint"
}

kubectl() { "$KUBECTL" "$@"; }

# --- the cluster -----------------------------------------------------------

# one_node starts the cluster of this machine.
one_node() {
	((EUID == 0)) || die "root access is required, to install packages and start a cluster on this machine" \
		"run it as root, or give the cluster to use: make run KUBECONFIG=\$HOME/.kube/config"
	command -v go >/dev/null || die "Go is missing" "to install it, see https://go.dev/doc/install"
	"${make[@]}" --silent deps || die "the required packages couldn't be installed" "see the output above; to try again, run make deps"
	# With -v, the progress is the package that is compiled.
	step "building the commands and the example programs" "see above" \
		env GOFLAGS="${GOFLAGS:-} -v" "${make[@]}" build build-cluster bytecode
	local log
	log=$(mktemp)
	"${make[@]}" --silent cluster-up 2>&1 | tee "$log" | sed -u '/^pushed /d' || die "the cluster doesn't start" \
		"to find its logs, run make cluster-status; to remove it, run make cluster-down"
	export KUBECONFIG=$CLUSTER_KUBECONFIG
	restart_changed "$log"
	rm -f "$log"
}

# restart_changed restarts workloads whose image was replaced under the same name.
restart_changed() {
	if grep -q 'image .*/bpfman-operator:' "$1" && kubectl -n bpfman get deployment bpfman-operator >/dev/null 2>&1; then
		kubectl -n bpfman rollout restart deployment/bpfman-operator >/dev/null
	fi
	if grep -qE 'image .*/bpfman(-agent|-csi|-inspector)?:' "$1" && kubectl -n bpfman get daemonset bpfman-daemon >/dev/null 2>&1; then
		step "restarting the node components: their images changed" "see above" \
			"$KUBECTL" -n bpfman delete pod -l name=bpfman-daemon
	fi
}

# given_cluster checks that the cluster in KUBECONFIG responds.
given_cluster() {
	command -v "$KUBECTL" >/dev/null || die "kubectl is missing" "to install it, see https://kubernetes.io/docs/tasks/tools/"
	kubectl --request-timeout=15s get --raw /readyz >/dev/null || die "the cluster of KUBECONFIG=$KUBECONFIG doesn't answer" \
		"check it with: kubectl get nodes"
	echo "using the cluster of KUBECONFIG=$KUBECONFIG"
}

# --- the program -----------------------------------------------------------

# render FILE-OR-DIRECTORY prints the manifests of an example with the specified images.
render() {
	if [[ -d $1 ]]; then kubectl kustomize "$1"; else cat "$1"; fi |
		sed -e "s|quay.io/bpfman-bytecode/|$BYTECODE_REGISTRY/$BYTECODE_PREFIX/|" \
			-e "s|quay.io/bpfman/bpfman-counters:latest|$BPFMAN_COUNTERS_IMG|"
}

# outcome KIND NAME waits for a result in the object's status. It prints the condition's
# type, the number of nodes where it is attached, and the message.
outcome() {
	local deadline=$((SECONDS + timeout)) state generation observed condition
	while ((SECONDS < deadline)); do
		state=$(kubectl get "$1" "$2" -o jsonpath='{.metadata.generation} {.status.observedGeneration} {.status.conditions[0].type} {.status.nodes.attached} {.status.conditions[0].message}')
		read -r generation observed condition _ <<<"$state"
		if [[ $generation == "$observed" && $condition != NotYetLoaded ]]; then
			echo "${state#* * }"
			return
		fi
		sleep 0.5
	done
	echo "NotYetLoaded 0 no answer within $timeout s: ${state#* * * }"
}

# attach_sample applies the counter of the first kind that the nodes' kernel supports,
# and sets kind to it.
attach_sample() {
	local candidate name condition attached message
	for candidate in xdp tcx; do
		name=go-$candidate-counter-example
		render "examples/config/go-$candidate-counter/bytecode.yaml" | kubectl apply -f - >/dev/null
		read -r condition attached message < <(outcome "${candidate}program" "$name")
		if [[ $condition == ReconcileSuccess ]] && ((attached > 0)); then
			kind=$candidate
			echo "  ${kind^^}: $message"
			return
		fi
		echo "  ${candidate^^} can't be used here. Its object reports: $message"
		kubectl delete "${candidate}program" "$name" --timeout=60s >/dev/null
	done
	die "neither XDP nor TCX programs can be attached in this cluster" \
		"the messages above are the daemon's; TCX requires Linux 6.6, and XDP a kernel with BPF trampolines" \
		"kubectl -n bpfman logs daemonset/bpfman-daemon -c bpfman  shows the daemon's log"
}

# fresh_readers restarts readers that are older than the program. Their volumes can
# contain the maps of a deleted program, for example after bpfman was deployed again.
fresh_readers() {
	local loaded started
	loaded=$(kubectl get bpfprograms -l "bpfman.io/ownedByProgram=go-$kind-counter-example" \
		-o jsonpath='{range .items[*]}{.status.loadedat}{"\n"}{end}' | sort | tail -n 1)
	started=$(kubectl -n "$namespace" get pods -l "name=go-$kind-counter" \
		-o jsonpath='{range .items[*]}{.status.startTime}{"\n"}{end}' | sort | head -n 1)
	if [[ -n $started && ${loaded:0:19} > ${started:0:19} ]]; then
		kubectl -n "$namespace" rollout restart "daemonset/go-$kind-counter-ds" >/dev/null
	fi
}

# --- traffic and readings --------------------------------------------------

# traffic sends packets to a node until it is stopped: pings from here, or, if these
# don't arrive, requests that the API server forwards to the node's kubelet.
traffic() {
	local node=$1 address=$2 ping=()
	if command -v ping >/dev/null; then ping=(ping); else ping=(busybox ping); fi
	if "${ping[@]}" -c 1 -w 2 "$address" >/dev/null 2>&1; then
		exec "${ping[@]}" -i 0.2 "$address" >/dev/null 2>&1
	fi
	while :; do
		kubectl get --raw "/api/v1/nodes/$node/proxy/healthz" >/dev/null 2>&1 || sleep 0.2
	done
}

# show_readings prints the pod's output while there is traffic, and fails unless each
# count is higher than the previous one.
show_readings() {
	local namespace=$1 pod=$2 node=$3 address=$4 sender reader logs line count last=-1 seen=0 grown=0
	traffic "$node" "$address" &
	sender=$!
	exec {logs}< <(exec timeout "$timeout" "$KUBECTL" -n "$namespace" logs --follow --tail=1 "$pod")
	reader=$!
	while ((seen < readings)) && read -r -u "$logs" line; do
		echo "  $line"
		[[ $line =~ packets=([0-9]+) ]] || continue
		count=${BASH_REMATCH[1]}
		((last >= 0 && count > last)) && grown=$((grown + 1))
		last=$count
		seen=$((seen + 1))
	done
	kill "$sender" "$reader" 2>/dev/null || true
	wait "$sender" 2>/dev/null || true
	exec {logs}<&-
	((seen == readings && grown == readings - 1))
}

# whoami_in prints the user that the application runs as: its first line comes from its
# own /proc/self/status. If the log doesn't contain that line any more, the application
# is run again.
whoami_in() {
	local said
	said=$(kubectl -n "$1" logs --limit-bytes=300 "$2")
	[[ $said == *CapEff* ]] || said=$(kubectl -n "$1" exec "$2" -- /counters --once --maps="/run/$kind/maps")
	grep -m 1 CapEff <<<"$said"
}

# --- all of it -------------------------------------------------------------

if [[ -z ${KUBECONFIG:-} || $KUBECONFIG -ef $CLUSTER_KUBECONFIG || $KUBECONFIG == "$CLUSTER_KUBECONFIG" ]]; then
	one_node
	overlay=config/one-node
	ending="${CLUSTER_DOWN:-make cluster-down}    # ends the cluster; nothing is left of it"
	registry=$("${make[@]}" --silent cluster-status | sed -n 's|^registry *\([^,]*\), CA \(.*\)|export REGISTRY=\1/you SSL_CERT_FILE=\2    # to push bytecode of your own: docs/tutorials/program-in-c.md|p')
else
	given_cluster
	registry=
	overlay=${DEPLOY:?}
	ending="make undeploy    # removes bpfman from the cluster, after: kubectl delete -k examples/config/go-KIND-counter"
fi

step "deploying bpfman ($overlay)" "to see what it is waiting for, run kubectl -n bpfman get pods, and describe pod" \
	"${make[@]}" deploy "KUBECONFIG=$KUBECONFIG" "DEPLOY=$overlay" "DEPLOY_TIMEOUT=${timeout}s"

echo "attaching the sample program"
kind=
attach_sample
namespace=go-$kind-counter
render "examples/config/go-$kind-counter" | kubectl apply -f - >/dev/null
fresh_readers
step "starting the application that reads its map" "to see what it is waiting for, run kubectl -n $namespace describe pods" \
	"$KUBECTL" -n "$namespace" rollout status "daemonset/go-$kind-counter-ds" "--timeout=${timeout}s"

read -r pod node address < <(kubectl -n "$namespace" get pods -l "name=go-$kind-counter" --field-selector=status.phase=Running \
	-o jsonpath='{.items[0].metadata.name} {.items[0].spec.nodeName} {.items[0].status.hostIP}{"\n"}')
echo "sending traffic to node $node; pod $pod says:"
identity=$(whoami_in "$namespace" "$pod") || die "pod $pod doesn't say as whom it runs" "kubectl -n $namespace logs $pod"
echo "  $identity"
[[ $identity == *"CapEff 0000000000000000" ]] || die "the application has capabilities, but should have none" "kubectl -n $namespace get pod $pod -o yaml"
show_readings "$namespace" "$pod" "$node" "$address" || die "the count doesn't grow" \
	"another program with a lower priority value on the same interface may end the chain before the counter:" \
	"to see the priorities, run kubectl get tcxprograms,xdpprograms -o wide"

# With -v, the progress is the package that is compiled.
step "building the kubectl plugin" "see above" env GOFLAGS="${GOFLAGS:-} -v" "${make[@]}" kubectl-bpfman

shown=$KUBECTL
[[ $(type -P kubectl) != "$KUBECTL" ]] || shown=kubectl
cat <<END

It works: a ${kind^^} program counts real packets, and a pod without any capability reads them. (${SECONDS} s)

Try next:
  export KUBECONFIG=$KUBECONFIG
  $shown get ${kind}programs -o wide
  $shown get bpfprograms
  $shown describe ${kind}program go-$kind-counter-example
  export PATH=$PWD/bin:\$PATH    # the kubectl plugin is $PWD/bin/kubectl-bpfman
  $shown bpfman programs
  $shown bpfman ui    # shows the same in a browser
  $shown -n $namespace logs daemonset/go-$kind-counter-ds --follow${registry:+
  $registry}
  ${ending//KIND/$kind}
END
