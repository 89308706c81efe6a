#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# Installs what testing the documentation's site takes: Python's venv, and a browser. Debian's Chromium is installed
# where there is no Chromium or Chrome.
set -euo pipefail
# shellcheck source=hack/progress.sh
. "$(dirname "$0")/../progress.sh"

missing=()
"${PYTHON:-python3}" -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
command -v chromium chromium-browser google-chrome >/dev/null || missing+=(chromium fonts-dejavu-core)
((${#missing[@]})) || exit 0
if ((EUID != 0)); then
	echo "missing packages, install them as root: apt-get install ${missing[*]}" >&2
	exit 1
fi
export DEBIAN_FRONTEND=noninteractive
slow "updating the list of Debian packages" apt-get update -q
slow "installing Debian packages: ${missing[*]}" apt-get install -qy --no-install-recommends "${missing[@]}"
