#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# Builds an image of a kind node if kind's own can't be pulled, and loads it into the running container engine. It
# consists of the root file system of deps.sh, kind's files from its Go module (KIND_FILES), and the Kubernetes of
# hack/kubernetes.
#
# usage: node-image.sh CACHE KUBERNETES BIN — KUBERNETES is the program of hack/kubernetes, and BIN contains those
# of hack/kubernetes/kubeadm, hack/cluster/offline, and hack/cluster/pause.
set -euo pipefail
cache=${1:?} kubernetes=${2:?} bin=${3:?}
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=hack/kind/versions.sh
. "$here/versions.sh"

work=$(mktemp -d -p "$cache")
trap 'umount "$work/root" 2>/dev/null || true; rm -rf "$work"' EXIT

# Additional files are in a layer above the root file system, which stays unchanged.
mkdir -p "$work"/{added,work,root}
mount -t overlay -o "lowerdir=$node_root,upperdir=$work/added,workdir=$work/work" overlay "$work/root"
root=$work/root

# kind's own files, and the steps of its Dockerfile.
cp -rT --no-preserve=mode "${KIND_FILES:?}/images/base/files" "$root"
chmod 755 "$root"/usr/local/bin/* "$root"/kind/bin/*
rm -f "$root"/lib/systemd/system/{multi-user,local-fs,basic}.target.wants/* "$root"/etc/systemd/system/*.wants/* \
	"$root"/lib/systemd/system/sockets.target.wants/*{udev,initctl}* \
	"$root"/lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service
echo "ReadKMsg=no" >>"$root/etc/systemd/journald.conf"
ln -sf /dev/null "$root/etc/systemd/system/systemd-binfmt.service"
mkdir -p "$root"/etc/kubernetes/manifests "$root"/kind/{images,manifests} "$root/opt/cni/bin"
chroot "$root" ctr oci spec |
	jq_in_node='.hooks.createContainer[0] = {"path": "/kind/bin/mount-product-files.sh"} | del(.process.rlimits)' \
		chroot "$root" sh -c 'jq "$jq_in_node"' >"$work/cri-base.json"
cp "$work/cri-base.json" "$root/etc/containerd/cri-base.json"

# Debian has these at other paths than kind.
ln -sf /usr/bin/containerd "$root/usr/local/bin/containerd"
cp "$root"/usr/lib/cni/{ptp,host-local,loopback,portmap} "$root/opt/cni/bin"

# Without CAP_SYS_RESOURCE, scores can't be lowered, and limits can't be raised.
sed -i -e '/^OOMScoreAdjust=/d' -e '/^Limit/d' "$root/etc/systemd/system/containerd.service"
sed -i -e 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/' "$root/etc/containerd/config.toml"
version=$("$bin/kubeadm" version -o short)
# DNS isn't started: see offline.yaml.
mapfile -t images < <("$bin/kubeadm" config images list --kubernetes-version "$version" | grep -v /coredns)
pause=$(printf '%s\n' "${images[@]}" | grep /pause:)
sed -i -e "s|sandbox_image = .*|sandbox_image = \"$pause\"\n  disable_apparmor = true|" "$root/etc/containerd/config.toml"

# Kubernetes, and its images, which the node imports when it starts.
echo "$version" >"$root/kind/version"
cp "$bin/kubeadm" "$kubernetes" "$root/usr/bin"
for name in kubelet kubectl; do
	ln -sf kubernetes "$root/usr/bin/$name"
done
"$bin/offline" --kubernetes "$kubernetes" --bin "$bin" kubernetes-images "$root/kind/images/kubernetes.tar" "${images[@]}"
cp "$here/node/import-images.service" "$root/etc/systemd/system"
mkdir -p "$root/etc/cni/net.d"
cp "$here/node/10-ptp.conflist" "$root/etc/cni/net.d"
chroot "$root" systemctl enable kubelet containerd undo-mount-hacks import-images

tar -C "$root" -c . | docker import --change 'ENV container=docker' --change 'ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]' - "$node_image"
