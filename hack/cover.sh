#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# Prints, for each package, which part of its statements at least one of the profiles covers.
set -euo pipefail
awk '
	!/^mode:/ { block = $1; package = $1; sub(/\/[^\/]*$/, "", package); of[block] = package; size[block] = $2; if ($3 > 0) covered[block] }
	END {
		for (block in size) { all[of[block]] += size[block]; if (block in covered) some[of[block]] += size[block] }
		for (package in all) printf "%5.1f %%  %s\n", 100 * some[package] / all[package], package
	}' "$@" | sort -k3
