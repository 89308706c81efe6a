// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package globals

import "testing"

func TestFile(t *testing.T) {
	for name, want := range map[string]string{"counts": "counts", ".bss": "bss", ".data.limits": "data_limits", ".rodata.str1.1": "rodata_str1_1"} {
		if got := File(name); got != want || IsSection(name) != (name[0] == '.') {
			t.Errorf("%s has the file %s, want %s", name, got, want)
		}
	}
}
