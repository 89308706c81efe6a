#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# Installs what testing the documentation's site needs: Python's venv, and a browser. If there is neither Chromium
# nor Chrome, it installs Debian's Chromium.
set -euo pipefail
# shellcheck source=hack/progress.sh
. "$(dirname "$0")/../progress.sh"
# shellcheck source=hack/packages.sh
. "$(dirname "$0")/../packages.sh"

missing=()
"${PYTHON:-python3}" -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
command -v chromium chromium-browser google-chrome >/dev/null || missing+=(chromium fonts-dejavu-core)
install_missing "${missing[@]}"
