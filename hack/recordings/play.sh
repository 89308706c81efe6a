#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# play.sh FILE types the commands in a file, one per line, into a terminal, and runs them. It skips blank lines and
# comments, and ends at the first command that fails.
set -euo pipefail
file=${1:?}

# The file must not be the commands' standard input.
mapfile -t commands < <(grep -vE '^[[:space:]]*(#|$)' "$file")
for command in "${commands[@]}"; do
	printf '\e[1;32m$\e[0m '
	sleep 0.5
	for word in $command; do
		printf '%s ' "$word"
		sleep 0.12
	done
	sleep 0.4
	echo
	eval "$command"
	sleep 2
done
