// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package load

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/internal/prerequisite"
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
	at := func(hook string) *gobpfman.LoadInfo {
		return &gobpfman.LoadInfo{Name: "h", Info: &gobpfman.ProgSpecificInfo{Info: &gobpfman.ProgSpecificInfo_LsmLoadInfo{LsmLoadInfo: &gobpfman.LsmLoadInfo{HookName: hook}}}}
	}
	hooks := t.TempDir()
	if err := os.WriteFile(filepath.Join(hooks, "vmlinux"), functionTypes(0, 0, "bpf_lsm_file_open"), 0o600); err != nil {
		t.Fatal(err)
	}
	modules := []uint64{100, moduleBPF}
	for name, c := range map[string]struct {
		dir   string
		infos []*gobpfman.LoadInfo
		want  string
	}{
		"a hook":                   {hooks, []*gobpfman.LoadInfo{at("file_open")}, ""},
		"no hook":                  {hooks, []*gobpfman.LoadInfo{at("file_opened")}, "function h can't be loaded: this kernel has no hook file_opened for LSM programs; did you mean file_open?: correct hook_name, or select other nodes"},
		"no hooks at all":          {dir, []*gobpfman.LoadInfo{at("file_open")}, "function h can't be loaded: this kernel has no hook file_open for LSM programs: correct hook_name, or select other nodes"},
		"a function of the kernel": {dir, []*gobpfman.LoadInfo{entry("do_unlinkat"), exit("do_unlinkat")}, ""},
		"no function":              {dir, []*gobpfman.LoadInfo{exit("do_unlinkat"), entry("do_unlink")}, "function f can't be loaded: this kernel has no function do_unlink, or inlines it; did you mean do_unlinkat?: correct func_name, or select other nodes"},
		"a function of a module":   {dir, []*gobpfman.LoadInfo{exit("nft_do_chain")}, "function g can't be loaded: the daemon can't attach it to nft_do_chain, which is in the kernel's module nf_tables: use a kprobe"},
		"programs that trace none": {filepath.Join(dir, "none"), []*gobpfman.LoadInfo{{Name: "h"}}, ""},
		"a kernel without types":   {filepath.Join(dir, "none"), []*gobpfman.LoadInfo{entry("do_unlink")}, ""},
	} {
		got := ""
		if err := untraced(&gobpfman.LoadRequest{Info: c.infos}, c.dir, func() ([]uint64, error) { return modules, nil }); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// An LSM program isn't loaded where the kernel would never run it. If the kernel doesn't say that, it is loaded.
func TestInactiveModule(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "vmlinux"), functionTypes(0, 0, "bpf_lsm_file_open"), 0o600); err != nil {
		t.Fatal(err)
	}
	request := &gobpfman.LoadRequest{Info: []*gobpfman.LoadInfo{{Name: "h", Info: &gobpfman.ProgSpecificInfo{
		Info: &gobpfman.ProgSpecificInfo_LsmLoadInfo{LsmLoadInfo: &gobpfman.LsmLoadInfo{HookName: "file_open"}},
	}}}}
	err := untraced(request, dir, func() ([]uint64, error) { return []uint64{100}, nil })
	if err == nil || !strings.Contains(err.Error(), "the security module bpf isn't active on this node") {
		t.Errorf("%v", err)
	}
	if err := untraced(request, dir, func() ([]uint64, error) { return nil, unix.ENOSYS }); err != nil {
		t.Error(err)
	}
}

// The kernel's answer agrees with the list of names in securityfs, where that is mounted.
func TestSecurityModules(t *testing.T) {
	ids, err := securityModules()
	listed, unread := os.ReadFile("/sys/kernel/security/lsm")
	if err != nil || unread != nil {
		prerequisite.Missing(t, fmt.Sprint(err, ", ", unread), prerequisite.SecurityModules)
	}
	names := strings.Split(strings.TrimSpace(string(listed)), ",")
	if slices.Contains(names, "bpf") != slices.Contains(ids, moduleBPF) || len(ids) != len(names) {
		t.Errorf("modules %v, and by name %v", ids, names)
	}
}
