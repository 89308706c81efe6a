// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package object

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// withoutTypes is a kernel with nothing but a version.
func withoutTypes(config map[string]string) *Kernel {
	return &Kernel{
		Version: 6<<16 | 12<<8 | 3,
		Types:   func() (*btf.Spec, error) { return nil, errors.New("no types here") },
		Config:  func() (map[string]string, error) { return config, nil },
	}
}

// probes returns an object from the parser's own tests, with programs of a type that bpfman has.
func probes(tb testing.TB, name string) []byte {
	tb.Helper()
	return bytes.ReplaceAll(parsersOwn(tb, name), []byte("socket"), []byte("kprobe"))
}

// Every object is accepted, the result is always the same, and has only programs that the loader recognizes.
func TestAdapt(t *testing.T) {
	for name, content := range everyObject(t) {
		object, err := Read(content)
		adapted, failed := Adapt(content, withoutTypes(nil))
		if err != nil {
			if failed == nil {
				t.Errorf("%s: accepted, although it can't be read: %v", name, err)
			}
			continue
		}
		if failed != nil {
			t.Logf("%s: %v", name, failed)
			if strings.HasSuffix(name, ".o") {
				t.Error("refused")
			}
			continue
		}
		again, err := Adapt(content, withoutTypes(nil))
		if err != nil || !bytes.Equal(again.Content, adapted.Content) {
			t.Errorf("%s: another result for the same object: %v", name, err)
		}
		f, err := parse(adapted.Content)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		programs, _ := f.functions() // none, if bpfman has a kind for none
		for _, p := range object.Programs {
			i := slices.IndexFunc(programs, func(q Program) bool { return q.Name == p.Name })
			if usable := adapted.Unusable[p.Name] == ""; usable && (i < 0 || programs[i].refused() || programs[i].Unsupported() != "") {
				t.Errorf("%s: the loader doesn't find %s in section %s", name, p.Name, p.Section)
			}
		}
	}
}

func TestAdaptedConfiguration(t *testing.T) {
	content := probes(t, "kconfig-el.elf")
	adapted, err := Adapt(content, withoutTypes(map[string]string{"CONFIG_HZ": "250", "CONFIG_BPF_SYSCALL": "y", "CONFIG_DEFAULT_HOSTNAME": `"node"`}))
	if err != nil {
		t.Fatal(err)
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(adapted.Content))
	if err != nil {
		t.Fatal(err)
	}
	values := spec.Maps[kconfigData]
	if values == nil || spec.Maps[kconfigSection] != nil {
		t.Fatalf("maps %v instead of %s", spec.Maps, kconfigData)
	}
	var want []byte
	for _, value := range []uint64{6<<16 | 12<<8 | 3, 250, 1} {
		want = binary.NativeEndian.AppendUint64(want, value)
	}
	want = append(want, 0) // a text of one byte, which is its end
	data, _ := values.Contents[0].Value.([]byte)
	if !adapted.ForKernel || binary.NativeEndian.Uint16([]byte{1, 0}) == 1 && !bytes.Equal(data, want) {
		t.Errorf("for the kernel: %v, values %x, want %x", adapted.ForKernel, data, want)
	}
	if got := adapted.Unusable["kconfig"]; len(adapted.Unusable) != 1 || got != `it uses the external "LINUX_HAS_SYSCALL_WRAPPER": no types here` {
		t.Errorf("unusable %q", adapted.Unusable)
	}
}

// What needs the kernel's types can't be used without them, and doesn't prevent the rest from being loaded.
func TestUnusable(t *testing.T) {
	for name, want := range map[string]string{
		"kfunc-el.elf":                  "no types here",
		"ksym-el.elf":                   "CAP_SYSLOG",
		"struct_ops-el.elf":             "bpfman has no kind for programs of type \"struct_ops\"",
		"../btf/testdata/relocs-el.elf": "it has CO-RE relocations, which need the kernel's types: no types here",
	} {
		adapted, err := Adapt(probes(t, name), withoutTypes(nil))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !strings.Contains(strings.Join(slices.Collect(maps.Values(adapted.Unusable)), "\n"), want) {
			t.Errorf("%s: unusable %q, want %q", name, adapted.Unusable, want)
		}
	}
}

// After the relocations were applied, none is left, and nothing in the code refers to the object's own types.
func TestCORE(t *testing.T) {
	content := probes(t, "../btf/testdata/relocs_read-el.elf")
	target, err := btf.LoadSpecFromReader(bytes.NewReader(parsersOwn(t, "../btf/testdata/relocs_read_tgt-el.elf")))
	if err != nil {
		t.Fatal(err)
	}
	adapted, err := Adapt(content, &Kernel{Types: func() (*btf.Spec, error) { return target, nil }})
	if err != nil {
		t.Fatal(err)
	}
	before, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	after, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(adapted.Content))
	if err != nil {
		t.Fatal(err)
	}
	var changed int
	for name, program := range after.Programs {
		for i, instruction := range program.Instructions {
			if btf.CORERelocationMetadata(&instruction) != nil {
				t.Errorf("%s: instruction %d still has a relocation", name, i)
			}
			was := before.Programs[name].Instructions[i]
			if was.Offset == instruction.Offset && was.Constant == instruction.Constant {
				continue
			}
			changed++
			if btf.CORERelocationMetadata(&was) == nil {
				t.Errorf("%s: instruction %d changed from %v to %v without a relocation", name, i, was, instruction)
			}
		}
	}
	if changed == 0 || len(adapted.Unusable) > 0 {
		t.Errorf("%d instructions changed, unusable %q", changed, adapted.Unusable)
	}
}

func TestLoaderName(t *testing.T) {
	for section, want := range map[string]string{
		"xdp": "xdp", "xdp/lo": "xdp", "xdp_prog": "xdp", "xdp.frags/eth0": "xdp.frags", "xdp/devmap": "",
		"tc": "classifier/tc", "tcx/ingress": "classifier/tcx/ingress", "classifier/x": "classifier/x",
		"kprobe.multi/tcp_*": "kprobe/kprobe.multi/tcp_*", "ksyscall/kill": "kprobe/ksyscall/kill", "kretsyscall/kill": "kretprobe/kretsyscall/kill",
		"uretprobe.multi.s/x": "uretprobe.s/uretprobe.multi.s/x", "fentry.s/f": "fentry.s/f", "iter/task": "", "tp_btf/sched_switch": "",
	} {
		if got := loaderName(section); got != want {
			t.Errorf("%s: %q, want %q", section, got, want)
		}
	}
}

func TestKernelVersion(t *testing.T) {
	for build, want := range map[[2]string]uint32{
		{"6.1.0-13-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.1.55-1 (2023-09-29)"}: 6<<16 | 1<<8 | 55,
		{"5.15.0-91-generic", "#101-Ubuntu SMP"}:                                  5<<16 | 15<<8,
		{"6.12-rc1", "#1"}:                                                        6<<16 | 12<<8,
		{"4.19.325", "#1"}:                                                        4<<16 | 19<<8 | 255, // the kernel's own macro has this limit
	} {
		if got, err := kernelVersion(build[0], build[1]); err != nil || got != want {
			t.Errorf("%q: %#x, want %#x: %v", build, got, want, err)
		}
	}
	if got, err := kernelVersion("next", ""); err == nil {
		t.Errorf("a release without a number is version %#x", got)
	}
}

func FuzzAdapt(f *testing.F) {
	for _, content := range everyObject(f) {
		if len(content) < 32<<10 {
			f.Add(content)
		}
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		adapted, err := Adapt(content, withoutTypes(map[string]string{"CONFIG_HZ": "250"}))
		if err != nil {
			return
		}
		if _, err := parse(adapted.Content); err != nil {
			t.Errorf("the result isn't an object: %v", err)
		}
	})
}
