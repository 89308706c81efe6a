#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# Makes targets one after another, even if an earlier one fails, and ends with a table of their results. It fails if one
# of them did.
#
# usage: parts.sh "TARGET [VARIABLE=value]…" …
#
# MAKE is the make to use.
set -uo pipefail

table=() status=0
trap 'exit 130' INT TERM
for part; do
	start=$SECONDS result=passed
	# shellcheck disable=SC2086 # a target and its variables
	"${MAKE:?}" --no-print-directory $part || result=FAILED status=1
	table+=("$(printf '%s %5d s  %s' "$result" $((SECONDS - start)) "$part")")
done
printf '%s\n' '' "${table[@]}"
exit "$status"
