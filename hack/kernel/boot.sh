#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# Runs a command in a virtual machine with Debian's 6.12 kernel, on this machine's root
# file system, which it doesn't change. It prints the command's output as it arrives, and
# exits with the command's exit status. The machine ends with the command. If the machine
# ends first, the script prints the end of its console, and exits with $machine_ended.
# When this script ends for any reason, nothing of the machine is left running.
#
# usage: boot.sh [--tap=INTERFACE] [--copy=FILE]… CACHE MEMORY COMMAND…
#
#   --tap   connect eth0 to that interface of this machine; the default is no
#           network
#   --copy  keep that file in memory, if it exists, because reading files is
#           slow otherwise
set -euo pipefail
options=() copies=()
while [[ $1 == --* ]]; do
	value=${1#*=}
	case $1 in
	--tap=*) options+=("--qemu-opts=-netdev tap,id=tap,ifname=$value,script=no,downscript=no -device virtio-net-pci,netdev=tap") ;;
	--copy=*) [[ ! -e $value ]] || copies+=("$(realpath --relative-to=/ "$value")") ;;
	*) echo "no such option: $1" >&2 && exit 2 ;;
	esac
	shift
done
cache=${1:?} memory=${2:?}
shift 2
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=hack/kernel/versions.sh
. "$here/versions.sh"

images=("$kernel"/boot/vmlinuz-*)
[[ -x $virtme/bin/vng && -f ${images[0]} ]] || { echo "the virtual machine's parts are missing: make deps-kernel" >&2; exit 1; }
# vng runs other commands of virtme-ng.
PATH=$virtme/bin:$PATH
work=$(mktemp -d)
machine=

# end stops the machine, which is a separate session, by the ids of its processes.
end() {
	[[ -z $machine ]] || kill -- "-$machine" 2>/dev/null || true
	rm -rf "$work"
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# boot runs the guest's script in the machine, which writes the command's exit status to
# the only writable directory.
boot() {
	local reader
	# A pipe, because qemu would truncate a file when it opens its output again.
	mkfifo "$work/output"
	cat "$work/output" &
	reader=$!
	setsid vng "${mode[@]}" "${options[@]}" --run "${images[0]}" --cpus "$(nproc)" --memory "$memory" --user root --rwdir="$work" \
		--append console=hvc0 --append oops=panic "--qemu-opts=-chardev file,id=kernel,path=$work/console -device virtio-serial-pci -device virtconsole,chardev=kernel" -- "$here/guest.sh" "$work/status" "$PWD" "$@" </dev/null >"$work/output" 2>&1 &
	machine=$!
	wait "$machine" || true
	machine=
	wait "$reader"
	[[ -s $work/status ]] || { { echo "the virtual machine ended before the command did; its kernel's last words:"; tail -n 100 "$work/console"; } >&2; return "$machine_ended"; }
	return "$(<"$work/status")"
}

# usable_kvm tries KVM, because /dev/kvm can exist and be unusable.
usable_kvm() {
	[[ -w /dev/kvm ]] || return 1
	mode=()
	timeout 30 vng --run "${images[0]}" --cpus 1 --memory 1G -- true </dev/null >"$work/kvm" 2>&1
}

if ((${#copies[@]})); then
	tar -C / -cf "$work/copies" "${copies[@]}"
	options+=("--qemu-opts=-drive file=$work/copies,format=raw,if=none,id=copies,readonly=on -device virtio-blk-pci,drive=copies")
fi
if usable_kvm; then
	mode=() kind="with KVM"
else
	mode=(--disable-kvm) kind="under software emulation: KVM can't be used here"
fi
echo "booting ${images[0]##*/vmlinuz-} $kind"
boot "$@"
