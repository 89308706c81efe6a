#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# `make recordings`: runs each session in this directory in a terminal, and writes the output to docs/recordings.
# NAME.cast is the recording (asciicast v2), NAME-played.svg is an animation of it, and NAME.svg is its last frame.
# Pages show the last frame, because an image in a page doesn't get the user's preference for reduced motion. The
# first session starts the cluster of this machine. The others use it.
#
# usage: record.sh [render | NAME] — render only creates the animations; NAME is the only session to record.
set -euo pipefail
: "${TERMTOSVG:?run this as: make recordings}" "${CLUSTER_KUBECONFIG:?}" "${CLUSTER_INSTANCE:?}"
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=$root/docs/recordings
mkdir -p "$out"

# The make in sessions is independent of the make that runs this script, which has already built everything.
unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES
export PATH=$root/bin:$PATH TERM=xterm-256color CLUSTER_INSTANCE BUILT=yes

# The maximum and minimum duration of a frame, in milliseconds. Longer waits are shortened.
longest=2500
shortest=100

# record NAME COLUMNSxROWS
record() {
	local name=$1 size=$2 play cast typist
	play=$(mktemp)
	cast=$(mktemp)
	# The recorder ends when its input ends, and always succeeds. The session's exit status is in a file.
	exec {typist}< <(exec sleep infinity)
	local sleeper=$!
	(cd "$root" && "$TERMTOSVG" record "$cast" -g "$size" \
		-c "bash -c '$here/play.sh $here/$name.session; echo \$? >$play'" <&"$typist")
	kill "$sleeper"
	exec {typist}<&-
	[[ $(<"$play") == 0 ]] || { echo "the session $name fails: $cast" >&2; exit 1; }
	# What is specific to this machine: the path of the repository, and the number of the cluster.
	sed -e "s|$root|/root/bpfman-operator|g" -e "s| CLUSTER_INSTANCE=$CLUSTER_INSTANCE||g" \
		-e "s|bin/kubeconfig$CLUSTER_INSTANCE|bin/kubeconfig|g" "$cast" >"$out/$name.cast"
	rm "$play" "$cast"
	render "$name"
}

# render NAME
render() {
	local stills
	stills=$(mktemp -d)
	"$TERMTOSVG" render "$out/$1.cast" "$out/$1-played.svg" -t "$here/template.svg" -m "$shortest" -M "$longest" -D 1000
	"$TERMTOSVG" render "$out/$1.cast" "$stills" -s -t "$here/template.svg" -m "$shortest" -M "$longest" -D 1000
	mv "$(find "$stills" -name '*.svg' | sort | tail -n 1)" "$out/$1.svg"
	rm -r "$stills"
}

case ${1:-} in
render)
	for cast in "$out"/*.cast; do render "$(basename "$cast" .cast)"; done
	;;
"")
	record make-run 112x30
	KUBECONFIG=$CLUSTER_KUBECONFIG record kubectl-bpfman 112x30
	;;
*)
	KUBECONFIG=$CLUSTER_KUBECONFIG record "$1" 112x30
	;;
esac
