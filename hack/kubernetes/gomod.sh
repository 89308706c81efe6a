#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# Writes go.mod for a version of Kubernetes: gomod.sh v1.36.3, and for the oldest supported
# version, gomod.sh v1.30.14 oldest. The module k8s.io/kubernetes
# replaces each staging module with a directory in its own tree, which the module proxy
# doesn't serve. Here, each is replaced with the published module of the same release
# (v1.36.3 -> v0.36.3).
set -euo pipefail
cd "$(dirname "$0")/${2:-}"
version=${1:?usage: gomod.sh v1.X.Y [DIRECTORY]}
staging=v0.${version#v1.}
export GOWORK=off GOFLAGS=-mod=mod

upstream=$(go mod download -json "k8s.io/kubernetes@$version" | sed -n 's/.*"GoMod": "\(.*\)",*/\1/p')
cp "$upstream" go.mod && chmod u+w go.mod
go mod edit -module "github.com/bpfman/bpfman-operator/hack/kubernetes${2:+/$2}" -require "k8s.io/kubernetes@$version"
sed -i '1,/^module/{/^\/\//d;/^$/d}' go.mod
sed -n 's|^\s*\(k8s.io/[a-z-]*\) => ./staging/.*|\1|p' "$upstream" | while read -r module; do
	go mod edit -replace "$module=$module@$staging" -droprequire "$module"
done
go mod tidy
