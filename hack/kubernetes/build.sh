#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# Builds Kubernetes from the Go module proxy, which needs nothing but Go. Prints what it
# builds, and nothing if it is there.
#
# usage: build.sh CACHE BIN — the program goes to CACHE, the link to kubectl to BIN.
#        build.sh CACHE BIN oldest — the API server of the oldest supported version goes to
#        CACHE, with links to the etcd and kubectl of the other one.
set -euo pipefail
cache=${1:?} bin=${2:?} which=${3:-}
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=hack/progress.sh
. "$here/../progress.sh"

version_of() { awk '$1 == "k8s.io/kubernetes" { print $2 }' "$1/go.mod"; }
module=$here/$which
version=$(version_of "$module")
root=$cache/kubernetes-$version
# The sources of the build, because the version alone doesn't identify it.
source=$(cat "$module"/{main.go,go.mod,go.sum} | sha256sum)
if [[ ! -x $root/kubernetes || $(cat "$root/source" 2>/dev/null) != "$source" ]]; then
	mkdir -p "$root"
	variables=k8s.io/component-base/version
	GOWORK=off CGO_ENABLED=0 slow "building Kubernetes $version (about 5 minutes on 2 cores)" \
		go -C "$module" build -trimpath -o "$root/kubernetes.new" -ldflags "-s -w \
			-X $variables.gitVersion=$version -X $variables.gitTreeState=clean \
			-X $variables.gitMajor=1 -X $variables.gitMinor=$(cut -d. -f2 <<<"$version")" .
	mv "$root/kubernetes.new" "$root/kubernetes"
	echo "$source" >"$root/source"
fi
# The names that envtest expects.
ln -sfn kubernetes "$root/kube-apiserver"
for name in etcd kubectl; do
	ln -sfn "${which:+../kubernetes-$(version_of "$here")/}kubernetes" "$root/$name"
done
[[ -z $which ]] || exit 0
mkdir -p "$bin"
[[ $(readlink "$bin/kubectl") == "$root/kubectl" ]] || ln -sf "$root/kubectl" "$bin/kubectl"
