#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# Builds containerd 2 with its shim from the Go module proxy, which needs nothing but Go: Debian 12 has containerd 1.6,
# which has no NRI. Prints what it builds, and nothing if it is there.
#
# usage: build.sh CACHE — the commands go to CACHE/containerd-VERSION.
set -euo pipefail
cache=${1:?}
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=hack/progress.sh
. "$here/../progress.sh"
export GOWORK=off CGO_ENABLED=0
version=$(awk '$1 == "require" { print $3 }' "$here/go.mod")
root=$cache/containerd-$version

build() (
	set -e
	cp "$here/go.mod" "$root/go.mod"
	for command in containerd containerd-shim-runc-v2; do
		go -C "$here" build -mod=mod -modfile="$root/go.mod" -trimpath -tags no_btrfs,no_devmapper,no_zfs,no_tracing \
			-ldflags "-s -w -X github.com/containerd/containerd/v2/version.Version=$version" -o "$root/new/$command" \
			"github.com/containerd/containerd/v2/cmd/$command"
	done
	mv "$root"/new/* "$root"
)

mkdir -p "$root/new"
[[ -x $root/containerd && -x $root/containerd-shim-runc-v2 ]] ||
	slow "building containerd $version (about 3 minutes on 2 cores)" build
