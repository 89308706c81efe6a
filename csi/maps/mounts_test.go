// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package maps

import (
	"strings"
	"testing"
)

// FuzzParseMount checks that names which the kernel escapes in a mount table are read as they were.
func FuzzParseMount(f *testing.F) {
	f.Add("csi-1", "/var/lib/kubelet/pods/uid/volumes/x/mount")
	f.Add("a b", "/a\tb\\040")
	escaped := strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`)
	f.Fuzz(func(t *testing.T, id, target string) {
		_, _ = parseMount(target) // any line
		if strings.ContainsAny(id+target, "\v\f\r\u0085\u00a0\u2028\u2029") || !strings.HasPrefix(target, "/") {
			t.Skip()
		}
		line := "36 35 0:42 / " + escaped.Replace(target) + " rw shared:1 - bpf " + escaped.Replace(source+"/"+id) + " rw"
		if got, ok := parseMount(line); !ok || got.ID != id || got.Target != target {
			t.Errorf("%q is read as %+v, %v", line, got, ok)
		}
	})
}
