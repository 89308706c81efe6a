#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# Copies the page "not found" of a version to the root of the branch gh-pages. GitHub shows the root's page for every
# address that doesn't exist.
#
# usage: not-found.sh VERSION
set -euo pipefail

page=$(git rev-parse --verify "gh-pages:$1/404.html")
tree=$({
	git ls-tree gh-pages | grep -v $'\t404.html$'
	printf '100644 blob %s\t404.html\n' "$page"
} | git mktree)
if [[ $tree != "$(git rev-parse 'gh-pages^{tree}')" ]]; then
	git update-ref refs/heads/gh-pages "$(git commit-tree "$tree" -p gh-pages -m "The page \"not found\" of $1 for the whole site")"
fi
