#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# `make recordings`: runs each session beside this script in a terminal, and writes what it shows to docs/recordings:
# NAME.cast is the recording (asciicast v2), NAME-played.svg the animation made of it, and NAME.svg how it ends. Pages
# show how it ends: browsers don't tell an image of a page that somebody asks for less motion. The first session starts
# the cluster of this machine; the others use it.
#
# usage: record.sh [render | NAME] — render makes the animations again; NAME is the one session to record.
set -euo pipefail
: "${TERMTOSVG:?run this as: make recordings}" "${CLUSTER_KUBECONFIG:?}" "${CLUSTER_INSTANCE:?}"
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=$root/docs/recordings
mkdir -p "$out"

# The sessions' make isn't a part of the one that runs this, which has built everything.
unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES
export PATH=$root/bin:$PATH TERM=xterm-256color CLUSTER_INSTANCE BUILT=yes

# Waits are shortened to this many milliseconds, and what comes faster than this is one frame.
longest=2500
shortest=100

# record NAME COLUMNSxROWS
record() {
	local name=$1 size=$2 play cast typist
	play=$(mktemp)
	cast=$(mktemp)
	# The recorder ends when its input does, and always well; the session says how it ended itself.
	exec {typist}< <(exec sleep infinity)
	local sleeper=$!
	(cd "$root" && "$TERMTOSVG" record "$cast" -g "$size" \
		-c "bash -c '$here/play.sh $here/$name.session; echo \$? >$play'" <&"$typist")
	kill "$sleeper"
	exec {typist}<&-
	[[ $(<"$play") == 0 ]] || { echo "the session $name fails: $cast" >&2; exit 1; }
	# What is of this machine alone: where the repository is, and which of several clusters this one is.
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
