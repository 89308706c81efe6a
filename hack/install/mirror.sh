#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# Copies all images of a release to another registry, and makes the release's files use these copies.
#
#   mirror.sh ARCHIVE REGISTRY     for example: mirror.sh bpfman-operator-1.2.3-images.tar registry.example.com/bpfman
#
# It needs oras, which has to be logged in to the registry, but no other registry. ORAS is that command. In the directory mirrored beside this script, it writes the release's install files, and values.yaml for its
# chart, with the images by digest.
set -euo pipefail

die() {
	printf '%s\n' "$@" >&2
	exit 1
}

[[ $# == 2 ]] || die "usage: mirror.sh ARCHIVE REGISTRY"
archive=$1 registry=${2%/}
files=$(cd "$(dirname "$0")" && pwd)
oras() { command "${ORAS:-oras}" "$@"; }
oras version >/dev/null || die "nothing is copied: there is no oras command"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/images"
tar -xf "$archive" -C "$work/images"

# names prints the digest and the name of each image. In the OCI layout, the annotations of an image follow its digest.
names() {
	grep -oE '"(digest|org\.opencontainers\.image\.ref\.name)": *"[^"]*"' "$work/images/index.json" |
		awk -F'"' '$2 == "digest" { digest = $4; next } { print digest, $4 }'
}

# The name of the operator's image shows where the release was published.
from=$(names | sed -nE 's,^[^ ]* (.*)/bpfman-operator:v[^/]*$,\1,p')
[[ -n $from ]] || die "nothing is copied: $archive doesn't have the images of a release"

exporter=''
while read -r digest name; do
	case $name in
	"$from"/*) to=$registry/${name#"$from"/} ;;
	*) to=$registry/${name##*/} ;; # of another project
	esac
	[[ $name != "$from"/bpfman-map-exporter:* ]] || exporter=$to@$digest
	echo "$to"
	oras cp --no-tty --from-oci-layout "$work/images@$digest" "$to" >/dev/null
	printf 's|%s\\(@sha256:[0-9a-f]*\\)\\{0,1\\}|%s@%s|g\n' "${name//./\\.}" "$to" "$digest" >>"$work/names.sed"
done < <(names)

mkdir -p "$files/mirrored"
for file in "$files"/*.yaml; do
	sed -f "$work/names.sed" "$file" >"$files/mirrored/${file##*/}"
done
# The keys of the ConfigMap, and the operator's Deployment, in the chart's words. Only the chart has the exporter.
{
	echo "images:"
	sed -nE -e 's/^ *bpfman\.image: *(.*)$/  daemon: \1/p' -e 's/^ *bpfman\.(agent|csi|inspector)\.image: *(.*)$/  \1: \2/p' \
		-e 's/^ *bpfman\.csi\.registrar\.image: *(.*)$/  registrar: \1/p' -e 's/^ *image: *(.*\/bpfman-operator[:@].*)$/  operator: \1/p' \
		"$files/mirrored/bpfman-all-install.yaml" | sort -u
	[[ -z $exporter ]] || printf 'exporter:\n  image: %s\n' "$exporter"
} >"$files/mirrored/values.yaml"
echo "use the files in $files/mirrored"
