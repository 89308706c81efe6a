#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# Installs what the tests of releases need in addition to `make deps`: curl, and QEMU's user mode.
set -euo pipefail
# shellcheck source=hack/progress.sh
. "$(dirname "$0")/../progress.sh"
# shellcheck source=hack/packages.sh
. "$(dirname "$0")/../packages.sh"

missing=()
command -v curl >/dev/null || missing+=(curl)
command -v qemu-aarch64-static qemu-s390x-static >/dev/null || missing+=(qemu-user-static)
install_missing "${missing[@]}"
