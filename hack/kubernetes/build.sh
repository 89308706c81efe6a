#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# Builds Kubernetes from the Go module proxy, which needs nothing but Go. Prints what it
# builds, and nothing if it is there.
#
# usage: build.sh CACHE BIN — the program goes to CACHE, the link to kubectl to BIN.
set -euo pipefail
cache=${1:?} bin=${2:?}
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=hack/progress.sh
. "$here/../progress.sh"

version=$(awk '$1 == "k8s.io/kubernetes" { print $2 }' "$here/go.mod")
root=$cache/kubernetes-$version
# The sources of the build, because the version alone doesn't identify it.
source=$(cat "$here"/{main.go,go.mod,go.sum} | sha256sum)
if [[ ! -x $root/kubernetes || $(cat "$root/source" 2>/dev/null) != "$source" ]]; then
	mkdir -p "$root"
	variables=k8s.io/component-base/version
	GOWORK=off CGO_ENABLED=0 slow "building Kubernetes $version (about 5 minutes on 2 cores)" \
		go -C "$here" build -v -trimpath -o "$root/kubernetes.new" -ldflags "-s -w \
			-X $variables.gitVersion=$version -X $variables.gitTreeState=clean \
			-X $variables.gitMajor=1 -X $variables.gitMinor=$(cut -d. -f2 <<<"$version")" .
	mv "$root/kubernetes.new" "$root/kubernetes"
	echo "$source" >"$root/source"
fi
# The names that envtest expects.
for name in etcd kube-apiserver kubectl; do
	[[ -L $root/$name ]] || ln -s kubernetes "$root/$name"
done
mkdir -p "$bin"
[[ $(readlink "$bin/kubectl") == "$root/kubectl" ]] || ln -sf "$root/kubectl" "$bin/kubectl"
