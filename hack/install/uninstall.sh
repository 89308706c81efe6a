#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# Removes what install.sh installed: the same manifests, and the definitions with this project's label, including
# all objects of their kinds. Other definitions in bpfman.io stay.
#
#   uninstall.sh FILE             FILE contains the operator; - is standard input
#   uninstall.sh --helm           the Helm release bpfman in the namespace bpfman, the definitions, and the namespace
#   uninstall.sh --definitions    only the definitions
#
# It ends within minutes, whether bpfman runs or not, and prints the cluster, and what is left. If the cluster has only
# definitions of other software, or a Helm release of bpfman that it doesn't uninstall, it deletes nothing. KUBECTL is the
# kubectl command, and HELM the helm command.
set -euo pipefail

kubectl() { command "${KUBECTL:-kubectl}" "$@"; }
mark=bpfman.io/owned-definition=true

die() {
	printf '%s\n' "$@" >&2
	exit 1
}

# definitions lists the definitions in bpfman.io that match a label selector.
definitions() {
	kubectl get customresourcedefinitions -l "$1" \
		-o go-template='{{range .items}}{{if eq .spec.group "bpfman.io"}}{{.metadata.name}} {{end}}{{end}}'
}

warn() {
	local loaded pods reports
	reports=$(grep -oE 'bpf(ns)?programs\.bpfman\.io' <<<"$owned" | paste -sd,) || true
	if [[ -n $reports ]]; then
		# A report without the id of a program, such as upstream's, doesn't describe a loaded program.
		loaded=$(kubectl get "$reports" -A -o go-template='{{range .items}}{{with .status}}{{if .programid}}{{"x\n"}}{{end}}{{end}}{{end}}' | wc -l)
		((loaded == 0)) || echo "$loaded programs stay loaded on their nodes until the nodes reboot: to unload them, delete the objects that own them first"
	fi
	pods=$(kubectl get pods -A -o go-template='{{range .items}}{{$pod := .metadata}}{{range .spec.volumes}}{{with .csi}}{{if eq .driver "csi.bpfman.io"}}{{$pod.namespace}}/{{$pod.name}} {{end}}{{end}}{{end}}{{end}}')
	[[ -z $pods ]] || echo "pods with volumes of maps, which can't terminate without bpfman if you delete them later: $pods"
}

# The agents remove the bytecode that they keep on their nodes when they end, if they find that the ConfigMap is gone.
stored=/var/lib/bpfman/bytecode
agents='{{range .items}}{{$runs := false}}{{range .status.containerStatuses}}{{if and (eq .name "bpfman-agent") .state.running}}{{$runs = true}}{{end}}{{end}}{{if not $runs}}{{.spec.nodeName}} {{end}}{{end}}'

# warn_stored names the nodes on which no agent runs that could do so.
warn_stored() {
	local pods nodes
	[[ -n $(kubectl -n bpfman get configmap bpfman-config --ignore-not-found -o name) ]] || return 0
	pods=$(kubectl -n bpfman get pods -l name=bpfman-daemon -o name)
	nodes=$(kubectl -n bpfman get pods -l name=bpfman-daemon -o go-template="$agents")
	if [[ -z $pods ]]; then
		echo "no agent runs: on nodes where one ran before, $stored stays until you delete it"
	elif [[ -n $nodes ]]; then
		echo "the agents on these nodes don't run, so $stored stays there until you delete it: $nodes"
	fi
}

# release removes upstream's finalizers from objects of some kinds, whose controllers no longer run. Arguments are
# for kubectl get.
release() {
	local found resource namespace name version finalizers rest finalizer
	found=$(kubectl get "$@" --ignore-not-found -o go-template="$with_finalizers") || return 0
	while IFS='|' read -r resource namespace name version finalizers; do
		[[ " $finalizers" == *" bpfman.io"* ]] || continue
		rest=''
		for finalizer in $finalizers; do
			[[ $finalizer == bpfman.io* ]] || rest+="${rest:+,}\"$finalizer\""
		done
		kubectl ${namespace:+-n "$namespace"} patch "$resource" "$name" --type=merge \
			-p "{\"metadata\":{\"resourceVersion\":\"$version\",\"finalizers\":[$rest]}}" || true
	done <<<"$found"
}

# An object or a list, with one object per line.
object='{{.kind}}|{{with .metadata.namespace}}{{.}}{{end}}|{{.metadata.name}}|{{.metadata.resourceVersion}}|{{range .metadata.finalizers}}{{.}} {{end}}{{"\n"}}'
with_finalizers="{{if .items}}{{range .items}}$object{{end}}{{else if .metadata.name}}$object{{end}}"

# Remove the ConfigMap first, while the operator can still remove what it created, and the agents can still find out
# that it is gone. The ConfigMap, or the DaemonSet, can have a finalizer of upstream, which a running operator removes.
remove_components() {
	local what
	kubectl -n bpfman delete configmap bpfman-config --ignore-not-found --wait=false
	for what in configmap/bpfman-config daemonset/bpfman-daemon; do
		kubectl -n bpfman wait --for=delete "$what" --timeout=20s >/dev/null 2>&1 || release -n bpfman "${what%/*}" "${what#*/}"
	done
	kubectl wait --for=delete csidriver/csi.bpfman.io --timeout=30s >/dev/null 2>&1 || true
	kubectl -n bpfman wait --for=delete pod -l name=bpfman-daemon --timeout=60s >/dev/null 2>&1 || true
	what=$(kubectl get csidriver csi.bpfman.io --ignore-not-found -o name && kubectl -n bpfman get pods -l name=bpfman-daemon -o name)
	[[ -z $what ]] || echo "the operator doesn't run, so these are deleted with the namespace: ${what//$'\n'/ }"
	[[ $what != *pod/* ]] || echo "if their agents lose their permissions before they end, $stored stays on their nodes until you delete it"
}

# Deleting a definition deletes all objects of its kind, so finalizers of upstream on these protect nothing.
remove_definitions() {
	local kinds
	kinds=$(tr ' ' ',' <<<"${owned% }")
	[[ -n $kinds ]] || return 0
	# With this policy, only the agent can write reports.
	kubectl delete validatingadmissionpolicybinding bpfman-programs-are-reports --ignore-not-found --timeout=30s
	release "$kinds" -A
	# Another manifest, or the chart, can have installed the namespaced BpfApplication with its role. With v0.5's definition, which
	# somebody can install later, admins of a namespace would reach the whole node by this role.
	[[ " $owned" != *" bpfapplications.bpfman.io "* ]] || kubectl delete clusterrole bpfman-bpfapplication-admin-role --ignore-not-found
	kubectl delete customresourcedefinitions -l "$mark" --wait=false
	# An object can have been created in between, and the policy stays in effect for a moment after its binding is
	# deleted.
	for _ in 1 2 3; do
		# shellcheck disable=SC2086 # one argument for each
		! kubectl wait --for=delete customresourcedefinitions $owned --timeout=20s >/dev/null 2>&1 || return 0
		release "$kinds" -A
	done
	die "definitions are still being deleted, because finalizers of other software keep these objects:" \
		"$(kubectl get "$kinds" -A -o go-template="$with_finalizers" 2>&1)"
}

# documents prints the manifests without definitions, and without the namespace unless it belongs only to this
# project.
documents() {
	awk -v namespace="$1" '
		function flush() { if (text != "" && !drop) printf "%s---\n", text; text = ""; drop = 0 }
		/^---/ { flush(); next }
		$0 == "kind: CustomResourceDefinition" || (namespace == "keep" && $0 == "kind: Namespace") { drop = 1 }
		{ text = text $0 "\n" }
		END { flush() }' "$manifests"
}

# refuse_other_releases ends the script if there is a Helm release that it doesn't uninstall: its operator and node pods
# would run on without definitions. Helm annotates what it creates with the release. Other tools that apply the chart,
# such as Argo CD, don't.
refuse_other_releases() {
	local found namespace release
	found=$(kubectl get deployments -A -l app.kubernetes.io/managed-by=Helm,app.kubernetes.io/name=bpfman-operator \
		-o go-template='{{range .items}}{{.metadata.namespace}} {{with .metadata.annotations}}{{with index . "meta.helm.sh/release-name"}}{{.}}{{end}}{{end}}{{"\n"}}{{end}}')
	while read -r namespace release; do
		[[ -n $namespace && "$namespace ${release:-bpfman}" != "bpfman bpfman" ]] || continue
		[[ -n $release ]] || die "nothing is deleted: another tool than Helm installed the Helm chart in namespace $namespace. Uninstall it with that" \
			"tool, and then delete the definitions:" "  uninstall.sh --definitions"
		die "nothing is deleted: the cluster has the Helm release $release in namespace $namespace. Uninstall it," \
			"and then delete the definitions:" "  helm uninstall $release --namespace $namespace && uninstall.sh --definitions"
	done <<<"$found"
}

[[ $# == 1 ]] || die "usage: uninstall.sh FILE, uninstall.sh --helm, or uninstall.sh --definitions"
context=$(kubectl config current-context 2>/dev/null || true)
server=$(kubectl config view --minify -o jsonpath='{.clusters[0].cluster.server}' 2>/dev/null || true)
echo "cluster ${server:-of the pod}${context:+, context $context}"
[[ $1 == --definitions ]] || refuse_other_releases
owned=$(definitions "$mark")
others=$(definitions "${mark/=/!=}")
[[ -n $owned || -z $others ]] || die "nothing is deleted: the cluster's definitions belong to other software, or to an earlier version of this" \
	"project, which didn't label them. In that case, install the current version first: $others"
if [[ $1 == --definitions ]]; then
	remove_definitions
	[[ -z $others ]] || echo "definitions of other software stay: $others"
	exit 0
fi

manifests=$(mktemp)
trap 'rm -f "$manifests"' EXIT
if [[ $1 == --helm ]]; then
	helm() { command "${HELM:-helm}" "$@"; }
	helm version >/dev/null || die "nothing is deleted: there is no helm command"
	printf 'apiVersion: v1\nkind: Namespace\nmetadata:\n  name: bpfman\n' >"$manifests"
else
	cat -- "$1" >"$manifests"
	[[ -s $manifests ]] || die "nothing is deleted: $1 is empty"
	# Such as the file with the definition of States, or with monitors: all objects and definitions would go with it.
	grep -qx 'kind: Deployment' "$manifests" || die "nothing is deleted: $1 doesn't contain the operator, so it isn't all of bpfman. To delete" \
		"only what it contains:" "  kubectl delete --ignore-not-found -f $1"
fi
warn
warn_stored
remove_components
remove_definitions
if [[ -n $others ]]; then
	echo "definitions of other software stay, and the namespace bpfman, which can contain their operator: $others"
	namespace=keep
fi
if [[ $1 == --helm ]]; then
	helm uninstall bpfman --namespace bpfman --ignore-not-found
	[[ -z ${namespace:-} ]] || exit 0
fi
documents "${namespace:-delete}" | kubectl delete --ignore-not-found --timeout=120s -f -
