#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# Tests config/selinux/bpfman-maps.cil. Boots a kernel with SELinux in enforcing mode in
# a virtual machine, and opens maps in the domain of containers, with the module and
# without it.
#
# usage: test.sh VNG KERNEL; needs secilc (Debian's package of that name) and Go.
set -euo pipefail
vng=${1:?} kernel=${2:?}
here=$(cd "$(dirname "$0")" && pwd)
PATH=$(dirname "$vng"):$PATH

work=$(mktemp -d)
machine=
end() {
	[[ -z $machine ]] || kill -- "-$machine" 2>/dev/null || true
	rm -rf "$work"
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# The kernels of Debian 12 and of its backports support this version of the format.
secilc -c 33 -f /dev/null -o "$work/without" "$here/base.cil"
secilc -c 33 -f /dev/null -o "$work/with" "$here/base.cil" "$here/../../config/selinux/bpfman-maps.cil"
CGO_ENABLED=0 go -C "$here/../../csi" test -c -o "$work/maps.test" ./maps

setsid "$vng" --disable-kvm --run "$kernel" --cpus 2 --memory 2G --user root --rwdir="$work" \
	--append "lsm=landlock,lockdown,yama,integrity,selinux,bpf audit=1" \
	-- "$here/guest.sh" "$work" </dev/null >"$work/boot" 2>&1 &
machine=$!
wait "$machine" || true
machine=
cat "$work/log" || cat "$work/boot"
[[ -s $work/status ]] || { echo "the virtual machine ended before the tests did" >&2; exit 1; }
exit "$(<"$work/status")"
