// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package load

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// functionTypes returns types in the kernel's form with a function and its prototype. Types and strings are numbered
// from those that they are based on.
func functionTypes(types, texts uint32, name string) []byte {
	names := "\x00" + name + "\x00"
	const prototype, function, typesSize = 13 << 24, 12 << 24, 24
	out, _ := binary.Append(nil, binary.NativeEndian, []uint32{1<<16 | 0xeb9f, 24, 0, typesSize, typesSize, uint32(len(names)), 0, prototype, 0, texts + 1, function, types + 1})
	return append(out, names...)
}

// A program on entry or exit of a function that the daemon can't find isn't loaded: the daemon would only say that a type is
// unknown.
func TestUntraced(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string][]byte{"vmlinux": functionTypes(0, 0, "do_unlinkat"), "nf_tables": functionTypes(2, uint32(len("do_unlinkat")+2), "nft_do_chain"), "damaged": nil} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	entry := func(function string) *gobpfman.LoadInfo {
		return &gobpfman.LoadInfo{Name: "f", Info: &gobpfman.ProgSpecificInfo{Info: &gobpfman.ProgSpecificInfo_FentryLoadInfo{FentryLoadInfo: &gobpfman.FentryLoadInfo{FnName: function}}}}
	}
	exit := func(function string) *gobpfman.LoadInfo {
		return &gobpfman.LoadInfo{Name: "g", Info: &gobpfman.ProgSpecificInfo{Info: &gobpfman.ProgSpecificInfo_FexitLoadInfo{FexitLoadInfo: &gobpfman.FexitLoadInfo{FnName: function}}}}
	}
	for name, c := range map[string]struct {
		dir   string
		infos []*gobpfman.LoadInfo
		want  string
	}{
		"a function of the kernel": {dir, []*gobpfman.LoadInfo{entry("do_unlinkat"), exit("do_unlinkat")}, ""},
		"no function":              {dir, []*gobpfman.LoadInfo{exit("do_unlinkat"), entry("do_unlink")}, "function f can't be loaded: this kernel has no function do_unlink, or inlines it: correct func_name, or select other nodes"},
		"a function of a module":   {dir, []*gobpfman.LoadInfo{exit("nft_do_chain")}, "function g can't be loaded: the daemon can't attach it to nft_do_chain, which is in the kernel's module nf_tables: use a kprobe"},
		"programs that trace none": {filepath.Join(dir, "none"), []*gobpfman.LoadInfo{{Name: "h"}}, ""},
		"a kernel without types":   {filepath.Join(dir, "none"), []*gobpfman.LoadInfo{entry("do_unlink")}, ""},
	} {
		got := ""
		if err := untraced(&gobpfman.LoadRequest{Info: c.infos}, c.dir); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
