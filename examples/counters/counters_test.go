// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package counters

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func value(numbers ...uint64) []byte {
	var v []byte
	for _, n := range numbers {
		v = binary.NativeEndian.AppendUint64(v, n)
	}
	return v
}

func TestCountAddsUpCPUs(t *testing.T) {
	for _, c := range []struct {
		name   string
		values [][]byte
		want   string
	}{
		{"tcx_stats_map", [][]byte{value(2, 100), value(3, 50), value(0, 0)}, "tcx_stats_map: packets=5 bytes=150"},
		{"kprobe_stats_map", [][]byte{value(7), value(1)}, "kprobe_stats_map: events=8"},
	} {
		count := Count{Map: c.name}
		for _, v := range c.values {
			count.add(v)
		}
		if got := count.String(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestNames(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b_map", "a_map", "maps.debug"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "directory"), 0o700); err != nil {
		t.Fatal(err)
	}
	names, err := Names(dir)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"a_map", "b_map"}; !slices.Equal(names, want) {
		t.Errorf("Names = %v, want %v", names, want)
	}
}

func TestReadNamesTheMissingMap(t *testing.T) {
	_, err := Read(&Pin{Path: filepath.Join(t.TempDir(), "absent_map")})
	if err == nil || !strings.Contains(err.Error(), "absent_map") {
		t.Errorf("error %v doesn't name the map", err)
	}
}
