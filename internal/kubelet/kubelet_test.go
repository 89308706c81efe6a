// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package kubelet

import "testing"

func TestPodOf(t *testing.T) {
	const uid, static = "11111111-2222-3333-4444-555555555555", "0123456789abcdef0123456789abcdef"
	for path, want := range map[string]string{
		"/var/lib/kubelet/pods/" + uid + "/volumes/kubernetes.io~csi/maps/mount/counts":    uid,
		"/var/lib/kubelet/pods/" + static + "/volumes/kubernetes.io~csi/maps/mount/counts": static,
		"/var/lib/kubelet/pods/" + uid + "/volume-subpaths/maps/reader/0/counts":           uid,
		"/data/pods/kubelet/pods/" + uid + "/volumes/x/counts":                             uid,
		"/sys/fs/bpf/pods/counts":                     "",
		"/sys/fs/bpf/pods/" + uid + "/counts":         "",
		"/var/lib/kubelet/pods/" + uid + "/etc-hosts": "",
		"/var/lib/kubelet/pods//volumes/x/counts":     "",
		"/run/bpfman/fs/maps/7/counts":                "",
	} {
		if got := PodOf(path); got != want {
			t.Errorf("%s belongs to %q, want %q", path, got, want)
		}
	}
}
