#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# Builds Kubernetes from the Go module proxy, which needs nothing but Go. Prints what it
# builds, and nothing if it is there.
#
# usage: build.sh CACHE BIN — the program goes to CACHE, the link to kubectl to BIN.
#        build.sh CACHE BIN kubeadm — kubeadm of the same version goes to BIN.
#        build.sh CACHE BIN storage — its tests of storage drivers go to BIN.
#        build.sh CACHE BIN previous — the version of previous.mod goes to CACHE.
#        build.sh CACHE BIN oldest — the API server of the oldest supported version goes to
#        CACHE, with links to the etcd and kubectl of go.mod's version.
set -euo pipefail
cache=${1:?} bin=${2:?} which=${3:-}
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=hack/progress.sh
. "$here/../progress.sh"
export GOWORK=off CGO_ENABLED=0

version_of() { awk '$2 == "k8s.io/kubernetes" { print $3 }' "$1"; }
module=$here versions=$here/go.mod
case $which in
oldest) module=$here/oldest versions=$module/go.mod ;;
previous) versions=$here/previous.mod ;;
esac
version=$(version_of "$versions")
root=$cache/kubernetes-$version

# build PACKAGE FILE builds a command, with the go.mod and go.sum that it writes to the cache. The
# module k8s.io/kubernetes replaces each staging module with a directory in its own tree, which
# the module proxy doesn't serve. Here, each is replaced with the published module of the same
# release (v1.37.2 -> v0.37.2). Kubernetes' own go.mod selects the other dependencies.
build() (
	set -e
	variables=k8s.io/component-base/version
	cd "$root"
	cp "$versions" go.mod
	upstream=$(go mod download -json "k8s.io/kubernetes@$version" | sed -n 's/.*"GoMod": "\(.*\)",*/\1/p')
	sed -n 's|^\s*\(k8s.io/[a-z-]*\) => ./staging/.*|\1|p' "$upstream" | while read -r staging; do
		go mod edit -replace "$staging=$staging@v0.${version#v1.}"
	done
	go -C "$module" build -mod=mod -modfile="$root/go.mod" -trimpath -o "$2" -ldflags "-s -w \
		-X $variables.gitVersion=$version -X $variables.gitTreeState=clean \
		-X $variables.gitMajor=1 -X $variables.gitMinor=$(cut -d. -f2 <<<"$version")" "$1"
)

mkdir -p "$root" "$bin"
case $which in
kubeadm)
	build ./kubeadm "$bin/kubeadm"
	exit
	;;
storage)
	GOFLAGS="${GOFLAGS:-} -v" slow "building Kubernetes' tests of storage drivers (about 5 minutes on 2 cores)" build ./storage "$bin/kubernetes-storage"
	exit
	;;
esac
# The sources of the build, because the version alone doesn't identify it.
source=$(cat "$module/main.go" "$versions" | sha256sum)
if [[ ! -x $root/kubernetes || $(cat "$root/source" 2>/dev/null) != "$source" ]]; then
	# With -v, the progress is the package that is compiled.
	GOFLAGS="${GOFLAGS:-} -v" slow "building Kubernetes $version (about 5 minutes on 2 cores)" build . "$root/kubernetes.new"
	mv "$root/kubernetes.new" "$root/kubernetes"
	echo "$source" >"$root/source"
fi
# The names that envtest expects.
ln -sfn kubernetes "$root/kube-apiserver"
others=
[[ $which != oldest ]] || others=../kubernetes-$(version_of "$here/go.mod")/
for name in etcd kubectl; do
	ln -sfn "${others}kubernetes" "$root/$name"
done
[[ -z $which ]] || exit 0
[[ $(readlink "$bin/kubectl") == "$root/kubectl" ]] || ln -sf "$root/kubectl" "$bin/kubectl"
