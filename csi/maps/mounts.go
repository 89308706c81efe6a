// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package maps

import (
	"fmt"
	"strings"

	"github.com/moby/sys/mountinfo"

	"github.com/bpfman/bpfman-operator/internal/kubelet"
)

// List returns the volumes in the mount table. k8s.io/mount-utils refuses the whole table if other software has mounted a
// file system without a source, and returns paths with their escapes.
func (v *Volumes) List() ([]Volume, error) {
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("bpf"))
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	var volumes []Volume
	for _, mount := range mounts {
		id, ok := strings.CutPrefix(mount.Source, source+"/")
		if !ok {
			continue
		}
		relative, err := Below(v.root, mount.Mountpoint)
		if _, below, _ := strings.Cut(relative, "/"); err == nil && !strings.HasPrefix(below, kubelet.SubPaths+"/") {
			volumes = append(volumes, Volume{ID: id, Target: mount.Mountpoint})
		}
	}
	return volumes, nil
}
