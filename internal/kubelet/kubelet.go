// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package kubelet has what the directories of a kubelet say.
package kubelet

import "regexp"

// SubPaths is the directory below a pod's where the kubelet mounts parts of volumes, for volumeMounts with a subPath.
const SubPaths = "volume-subpaths"

// inVolume matches the path of a pod's volume, or of a part of one that a container mounts. A kubelet can have any root.
var inVolume = regexp.MustCompile(`/pods/([^/]+)/(?:volumes|` + SubPaths + `)/`)

// PodOf returns the UID of the pod whose volume contains a file, or an empty string.
func PodOf(path string) string {
	if match := inVolume.FindStringSubmatch(path); match != nil {
		return match[1]
	}
	return ""
}
