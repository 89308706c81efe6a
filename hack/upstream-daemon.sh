#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# Builds the bpfman daemon of v0.5, which only the tests of switching from it need.
# Prints nothing if it exists.
#
# usage: upstream-daemon.sh CACHE
set -euo pipefail
cache=${1:?}
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=hack/progress.sh
. "$here/progress.sh"

version=0.5.6
root=$cache/bpfman-$version

[[ -x $root/bin/bpfman-rpc ]] && exit
# Without optimization, because it only runs for seconds. This halves the build time.
CARGO_TARGET_DIR=$root/target CARGO_PROFILE_DEV_DEBUG=0 \
	slow "building the bpfman daemon $version (about 5 minutes on 2 cores)" \
	cargo install bpfman-api --version "$version" --locked --debug --root "$root"
rm -rf "$root/target"
