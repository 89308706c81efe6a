// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package maps

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestBelow(t *testing.T) {
	const root = "/var/lib/kubelet/pods"
	accepted := map[string]string{
		root + "/uid/volumes/kubernetes.io~csi/maps/mount": "uid/volumes/kubernetes.io~csi/maps/mount",
		root + "/..x": "..x",
	}
	for path, want := range accepted {
		if relative, err := Below(root, path); err != nil || relative != want {
			t.Errorf("Below(%q) = %q, %v", path, relative, err)
		}
	}
	for _, path := range []string{
		"", ".", "/", "pods/uid", root, root + "/", root + "/uid/", root + "//uid", root + "/./uid",
		root + "/../plugins", root + "/uid/../../x", root + "x/uid", "/etc/passwd",
		root + "/a\x00b", root + "/a\nb", root + "/" + strings.Repeat("x", 4096),
	} {
		if relative, err := Below(root, path); err == nil {
			t.Errorf("Below(%q) = %q, want an error", path, relative)
		}
	}
}

func FuzzBelow(f *testing.F) {
	for _, path := range []string{"/r/a", "/r/../a", "/r//a", "/rr", "/r/a/", "r/a", "/r/.", "/r/..."} {
		f.Add("/r", path)
	}
	f.Fuzz(func(t *testing.T, root, path string) {
		if !filepath.IsAbs(root) || filepath.Clean(root) != root {
			t.Skip()
		}
		relative, err := Below(root, path)
		if err != nil {
			return
		}
		if filepath.Join(root, relative) != path {
			t.Errorf("Below(%q, %q) = %q", root, path, relative)
		}
		for component := range strings.SplitSeq(relative, "/") {
			if component == "" || component == "." || component == ".." {
				t.Errorf("Below(%q, %q) = %q", root, path, relative)
			}
		}
	})
}
