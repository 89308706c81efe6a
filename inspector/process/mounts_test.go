// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Of a list of mounts that is too long, the complete lines are read.
func TestMountsWithin(t *testing.T) {
	proc := t.TempDir()
	line := func(n int) string { return fmt.Sprintf("%d 1 0:%d / /m%d rw - bpf none rw\n", n, n, n) }
	list := line(11) + line(12) + line(13)
	if err := errors.Join(os.Mkdir(filepath.Join(proc, "7"), 0o700), os.WriteFile(filepath.Join(proc, "7/mountinfo"), []byte(list), 0o600)); err != nil {
		t.Fatal(err)
	}
	size := int64(len(list))
	for most, want := range map[int64]string{
		size + 1: "/m11 /m12 /m13", size: "/m11 /m12 /m13 cut", size - 1: "/m11 /m12 cut", size - int64(len(line(13))) + 1: "/m11 /m12 cut", 3: " cut",
	} {
		mounts, read, err := MountsWithin(proc, 7, most, "bpf")
		var got []string
		for _, mount := range mounts {
			got = append(got, mount.Mountpoint)
		}
		text := strings.Join(got, " ")
		if errors.Is(err, ErrManyMounts) {
			text += " cut"
		} else if err != nil {
			t.Error(err)
		}
		if text != want || read != min(most, size) {
			t.Errorf("of %d bytes, %d are read: %s, want %s", most, read, text, want)
		}
	}
}
