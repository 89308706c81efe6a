#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# Installs bpfman from manifests, such as an install file of a release. It checks for definitions of other
# software, prints what it is going to run and where, applies the manifests, and waits until bpfman runs.
#
#   install.sh [--check] [--no-wait] FILE     FILE - is standard input
#
# With --check, it checks and prints, and applies nothing. With --no-wait, it applies without waiting. KUBECTL is
# the kubectl command. TIMEOUT is how long to wait for the operator, and for the node components (180s).
# IMAGES_LOADED=yes says that the nodes, or their registry, have your own images under the names in FILE.
set -euo pipefail

kubectl() { command "${KUBECTL:-kubectl}" "$@"; }
timeout=${TIMEOUT:-180s}

# Kinds that both upstream and this project define: all of v0.5's, and two of v0.6's, clusterbpfapplications and
# clusterbpfapplicationstates. Such a definition is taken over. In manifests with the namespaced BpfApplication of v0.6, that and
# its States are such too.
cluster_kinds="bpfapplications bpfprograms clusterbpfapplications clusterbpfapplicationstates fentryprograms fexitprograms kprobeprograms tcprograms tcxprograms
tracepointprograms uprobeprograms xdpprograms"
namespaced_kinds="bpfnsapplications bpfnsprograms tcnsprograms tcxnsprograms uprobensprograms xdpnsprograms"

# scope prints the scope of BpfApplication in the manifests, if they define it.
scope() {
	awk '/^---/ { name = 0 } /^  name: bpfapplications\.bpfman\.io$/ { name = 1 } name && /^  scope: / { print $2; exit }' "$manifests"
}

die() {
	printf '%s\n' "$@" >&2
	exit 1
}

# documents prints the manifests, without those of the given kind.
documents() {
	awk -v kind="kind: $1" '
		function flush() { if (text != "" && !drop) printf "%s---\n", text; text = ""; drop = 0 }
		/^---/ { flush(); next }
		$0 == kind { drop = 1 }
		{ text = text $0 "\n" }
		END { flush() }' "$manifests"
}

# look finds the definitions without this project's label, and adds them to foreign or taken. Each line is like
# "bpfapplications.bpfman.io (Namespaced)".
look() {
	local unmarked name scope kind
	unmarked=$(kubectl get customresourcedefinitions -l 'bpfman.io/owned-definition!=true' \
		-o go-template='{{range .items}}{{if eq .spec.group "bpfman.io"}}{{.metadata.name}} {{.spec.scope}}{{"\n"}}{{end}}{{end}}') ||
		die "nothing is applied: the cluster's definitions can't be listed"
	foreign='' taken=''
	if [[ $(scope) == Namespaced ]]; then
		cluster_kinds=${cluster_kinds#bpfapplications }
		namespaced_kinds+=" bpfapplications bpfapplicationstates"
	fi
	while read -r name scope; do
		[[ -n $name ]] || continue
		kind=${name%%.*}
		if [[ $scope == Cluster && " ${cluster_kinds//$'\n'/ } " == *" $kind "* ]] ||
			[[ $scope == Namespaced && " $namespaced_kinds " == *" $kind "* ]]; then
			taken+="  $name ($scope)"$'\n'
		else
			foreign+="  $name ($scope)"$'\n'
		fi
	done <<<"$unmarked"
}

refuse_foreign() {
	[[ -n $foreign ]] || return 0
	die "nothing is applied: the cluster has definitions in bpfman.io that this bpfman neither installed nor can take over:" \
		"${foreign%$'\n'}" \
		"Upstream's bpfman v0.6 installs such definitions. Its BpfApplication is namespaced, this one is cluster-scoped, and the" \
		"scope of a definition can't be changed. To migrate, save and convert your objects, remove upstream's operator, and then" \
		"delete these definitions, which also deletes all objects of their kinds. ClusterBpfApplications stay, and are taken over:" \
		"  kubectl delete customresourcedefinitions$(sed -E 's/^ +([^ ]+).*/ \1/' <<<"${foreign%$'\n'}" | tr -d '\n')" \
		"For each step, see docs/from-v0.6.md."
}

# refuse_other_scope refuses manifests whose BpfApplication has another scope than this project's in the cluster.
refuse_other_scope() {
	local own wanted
	wanted=$(scope)
	own=$(kubectl get customresourcedefinitions -l bpfman.io/owned-definition=true --field-selector metadata.name=bpfapplications.bpfman.io -o 'jsonpath={.items[*].spec.scope}')
	[[ -z $wanted || -z $own || $own == "$wanted" ]] ||
		die "nothing is applied: the definition bpfapplications.bpfman.io is to have the scope $wanted. The cluster's has the scope $own, which can't" \
			"be changed. To exchange it, delete it first, which also deletes all BpfApplications: see docs/from-v0.6.md."
}

# images prints the images in the manifests, with their purpose and name on one line each.
images() {
	documents CustomResourceDefinition | sed -nE \
		-e 's/^ *(- )?image: *"?([^" ]+)"?$/operator \2/p' \
		-e 's/^ *bpfman\.image: *"?([^" ]+)"?$/daemon \1/p' \
		-e 's/^ *bpfman\.(agent|csi|csi\.registrar|inspector)\.image: *"?([^" ]+)"?$/\1 \2/p'
}

# refuse_moving refuses image names under which upstream publishes other software, unless the user says that they
# are the user's own.
refuse_moving() {
	local named
	named=$(grep -oE 'quay\.io/bpfman/bpfman-(operator|agent|csi|inspector)(:[^@]*)?$' <<<"$1" || true)
	[[ -n $named && ${IMAGES_LOADED:-} != yes ]] || return 0
	die "nothing is applied: upstream publishes other software in quay.io/bpfman, under these names:" \
		"$(sed 's/^/  /' <<<"$named")" \
		"Specify the images that you built and pushed:  make deploy IMAGE_PREFIX=registry.example.com/bpfman IMAGE_TAG=test" \
		"The install files of a release reference their images by digest. If your nodes have your images under these names," \
		"for example because you loaded them into kind, set IMAGES_LOADED=yes."
}

announce() {
	local context server
	context=$(kubectl config current-context 2>/dev/null || true)
	server=$(kubectl config view --minify -o jsonpath='{.clusters[0].cluster.server}' 2>/dev/null || true)
	echo "cluster ${server:-of the pod}${context:+, context $context}"
	if [[ -n $1 ]]; then
		echo "images:"
		awk '{ printf "  %-14s %s\n", $1, $2 }' <<<"$1"
	fi
	if [[ -n $taken ]]; then
		echo "definitions of upstream's, or of an earlier version of this project, are taken over with their objects:"
		printf '%s' "$taken"
	fi
}

# replace_upstreams prepares for manifests what applying them can't do. A Deployment keeps the containers of other field
# managers, such as upstream's kube-rbac-proxy, which has the operator's port. The values of upstream's ConfigMap, which
# lacks the label, are replaced, so they are kept in an annotation, from which the operator takes them over.
replace_upstreams() {
	local containers values
	values=$(kubectl -n bpfman get configmaps --field-selector metadata.name=bpfman-config -l 'app.kubernetes.io/part-of!=bpfman' -o jsonpath='{.items[*].data}')
	[[ -z $values ]] || kubectl -n bpfman annotate --overwrite configmap bpfman-config bpfman.io/upstream-config="$values"
	containers=$(kubectl -n bpfman get deployment bpfman-operator --ignore-not-found -o jsonpath='{.spec.template.spec.containers[*].name}')
	[[ " $containers " != *" kube-rbac-proxy "* ]] || kubectl -n bpfman delete deployment bpfman-operator
}

# why prints what keeps bpfman from running, as far as Kubernetes reports it.
why() {
	echo "bpfman doesn't run within $timeout. Its parts, and what is reported about them:"
	kubectl -n bpfman get deployments,daemonsets,pods -o wide
	kubectl -n bpfman get deployment,pods -o go-template='{{range .items}}{{$name := .metadata.name}}{{range .status.conditions}}{{if and .message (ne .status "True")}}{{$name}}: {{.type}}={{.status}} {{.message}}{{"\n"}}{{end}}{{end}}{{range .status.containerStatuses}}{{$container := .name}}{{with .state.waiting}}{{$name}}: {{$container}} {{.reason}} {{.message}}{{"\n"}}{{end}}{{with .lastState.terminated}}{{$name}}: {{$container}} {{.reason}} {{.message}}{{"\n"}}{{end}}{{end}}{{end}}'
	kubectl -n bpfman get events --field-selector type=Warning --sort-by=.metadata.creationTimestamp | tail -n 20
	exit 1
} >&2

await() {
	kubectl -n bpfman rollout status deployment/bpfman-operator --timeout="$timeout" &&
		kubectl -n bpfman wait --for=create daemonset/bpfman-daemon --timeout="$timeout" &&
		kubectl -n bpfman rollout status daemonset/bpfman-daemon --timeout="$timeout"
}

check='' wait=yes file=''
for argument in "$@"; do
	case $argument in
	--check) check=yes ;;
	--no-wait) wait='' ;;
	-?*) die "usage: install.sh [--check] [--no-wait] FILE" ;;
	*) file=$argument ;;
	esac
done
[[ -n $file ]] || die "usage: install.sh [--check] [--no-wait] FILE"
manifests=$(mktemp)
trap 'rm -f "$manifests"' EXIT
cat -- "$file" >"$manifests"
[[ -s $manifests ]] || die "nothing is applied: $file is empty"

# Older ones apply other manifests from a kustomization, and can't wait for the DaemonSet's creation.
minor=$(kubectl version --client -o json | sed -nE 's/.*"minor": "([0-9]+).*/\1/p')
((${minor:-31} >= 31)) || die "nothing is applied: kubectl 1.31 or later is required, not 1.$minor"
minor=$(kubectl get --raw /version | sed -nE 's/.*"minor": "([0-9]+).*/\1/p')
((${minor:-30} >= 30)) || die "nothing is applied: Kubernetes 1.30 or later is required, not 1.$minor"

look
refuse_foreign
refuse_other_scope
used=$(images)
refuse_moving "$used"
announce "$used"
[[ -z $check ]] || exit 0
operator=''
grep -qx 'kind: Deployment' "$manifests" && operator=yes
[[ -z $operator ]] || replace_upstreams
kubectl apply --server-side --force-conflicts -f "$manifests"
if [[ -n $wait && -n $operator ]]; then
	await || why
fi
