#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# `make test-fuzz`: run each fuzz test of the given modules for FUZZ_TIME. What they find
# is kept in CORPUS, so that the next run continues where this one ended.
set -euo pipefail
: "${CORPUS:?run this as: make test-fuzz}" "${FUZZ_TIME:?}"
cd "$(dirname "$0")/.."

# A test with fewer executions has tested next to nothing.
least=500
failed=()
while IFS=: read -r file test; do
	package=$(dirname "$file")
	mkdir -p "$CORPUS/$package"
	output=$(go -C "$package" test -run '^$' -fuzz "^$test\$" -fuzztime "$FUZZ_TIME" -fuzzminimizetime 50x . -args -test.fuzzcachedir="$CORPUS/$package" 2>&1) || {
		printf '%s\n' "$output" >&2
		failed+=("$package $test")
		continue
	}
	executions=$(sed -nE 's/^fuzz: elapsed: .*execs: ([0-9]+) .*/\1/p' <<<"$output" | tail -n 1)
	printf '%9d executions  %s %s\n' "${executions:-0}" "$package" "$test"
	((${executions:-0} >= least)) || failed+=("$package $test had fewer than $least executions")
done < <(grep -roE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' "$@" | sed 's/:func /:/' | sort)
((${#failed[@]} == 0)) || {
	printf 'failed: %s\n' "${failed[@]}" >&2
	exit 1
}
