#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# Runs the tests of the daemon, in the virtual machine. It is a file because the command of a virtual machine is part of
# its kernel's command line, which can have 2,048 bytes.
#
# usage: suites.sh TESTS KUBERNETES [OTHER_DAEMON] — TESTS and KUBERNETES are the directories of compiled tests, and of
# kube-apiserver and etcd. OTHER_DAEMON is the path of a daemon in Go.
set -uo pipefail
tests=${1:?} kubernetes=${2:?} other=${3:-}
status=0

for suite in bytecode inspector; do
	echo "=== the tests of $suite"
	(cd "tests/$suite" && "$tests/$suite.test" -test.count=1 -test.v) || status=$?
done
if [[ -n $other ]]; then
	echo "=== the other daemon"
	export TEST_REQUIRES="$TEST_REQUIRES LSM envtest commands" BPFMAN_RPC=$other KUBEBUILDER_ASSETS=$kubernetes KUBEBUILDER_CONTROLPLANE_START_TIMEOUT=10m
	(cd tests/contract && "$tests/contract.test" -test.count=1 -test.v) || status=$?
	# The API server needs an address and a route.
	modprobe dummy && ip link add dummy0 type dummy && ip address add 192.0.2.1/24 dev dummy0 && ip link set dummy0 up && ip route add default dev dummy0
	(cd tests/bytecodesource && "$tests/bytecodesource.test" -test.count=1 -test.v -test.run "^TestLSM") || status=$?
fi
exit "$status"
