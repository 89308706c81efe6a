#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# Runs a command in a virtual machine with Debian's 6.12 kernel, on this
# machine's root file system, of which it changes nothing: the command's output is
# printed as it comes, its exit status is this script's, and the machine ends with
# it. Where the machine ends first, the end of its console is printed and the
# status is $machine_ended. Nothing of it is left running, whatever ends this script.
#
# usage: boot.sh [--tap=INTERFACE] [--copy=FILE]… CACHE MEMORY COMMAND…
#
#   --tap   eth0 is the other end of that interface of this machine; without, there
#           is no network
#   --copy  have that file in memory, if there is one: files are read slowly otherwise
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
# vng runs others of virtme-ng's commands.
PATH=$virtme/bin:$PATH
work=$(mktemp -d)
machine=

# end stops the machine, a session of its own, by the ids of its processes.
end() {
	[[ -z $machine ]] || kill -- "-$machine" 2>/dev/null || true
	rm -rf "$work"
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# boot runs the guest's script in the machine, which leaves the command's exit
# status in the one directory that it can write to.
boot() {
	local reader
	# A pipe: qemu opens its output anew, which would truncate a file.
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

# usable_kvm tries it: a /dev/kvm that can be opened may still not be able to run anything.
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
