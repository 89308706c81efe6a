#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# Fails if a commit after BASE has no line with which its author signs it off (https://developercertificate.org).
#
# usage: sign-off.sh BASE
set -euo pipefail
base=${1:?usage: sign-off.sh BASE}
status=0
for commit in $(git rev-list --no-merges "$base..HEAD"); do
	if ! git show -s --format=%B "$commit" | grep -qF "Signed-off-by: $(git show -s --format='%an <%ae>' "$commit")"; then
		git show -s --format='%h %s' "$commit"
		status=1
	fi
done
((status == 0)) || echo "these commits aren't signed off by their authors: git rebase --signoff $base" >&2
exit "$status"
