// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bytecode

import (
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bpfman/bpfman-operator/apis/prerequisite"
	"github.com/bpfman/bpfman-operator/cli/golden"
)

// objects is the directory with the output of `make bytecode`.
const objects = "../../bin/bytecode"

func compiled(tb testing.TB, name string) []byte {
	tb.Helper()
	content, err := os.ReadFile(filepath.Join(objects, name))
	if err != nil {
		prerequisite.Missing(tb, "run `make bytecode` first", prerequisite.Bytecode)
	}
	return content
}

func TestRead(t *testing.T) {
	for _, name := range []string{"go-app-counter.o", "globals.o", "map_types.o", "pinned.o"} {
		t.Run(name, func(t *testing.T) {
			object, err := Read(compiled(t, name))
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.MarshalIndent(object, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden.Check(t, name+".json", string(text)+"\n")
		})
	}
}

func TestSnakeCase(t *testing.T) {
	for name, want := range map[string]string{
		"Hash": "hash", "PerCPUArray": "per_cpu_array", "LPMTrie": "lpm_trie", "RingBuf": "ring_buf",
	} {
		if got := snakeCase(name); got != want {
			t.Errorf("snakeCase(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestProgramType(t *testing.T) {
	for section, want := range map[string]string{
		"xdp": "xdp", "xdp.frags": "xdp", "classifier": "tc", "classifier/ingress": "tc", "uprobe": "uprobe", "tp/sched/sched_switch": "tracepoint",
		"tracepoint/syscalls/sys_enter_kill": "tracepoint", "fexit/do_unlinkat": "fexit", "sockops": "sockops",
	} {
		if got := programType(section); got != want {
			t.Errorf("programType(%q) = %q, want %q", section, got, want)
		}
	}
}

// Sections that the daemon's loader recognizes, and sections that only other loaders recognize.
func TestProblems(t *testing.T) {
	for section, fine := range map[string]bool{
		"xdp": true, "classifier/ingress": true, "tracepoint/syscalls/sys_enter_kill": true, "uprobe.s": true, "sockops": true, "cgroup_skb/ingress": true,
		"tc": false, "tcx/ingress": false, "action": false, "kprobe.multi/x": false, "netkit/primary": false,
	} {
		object := Object{Programs: []Program{{Name: "f", Section: section}}}
		if got := len(object.Problems()) == 0; got != fine {
			t.Errorf("%s: problems %q", section, object.Problems())
		}
	}
}

func TestValues(t *testing.T) {
	for want, v := range map[string]Variable{
		"200":        {Type: "u8", Size: 1, Default: []byte{200}},
		"-56":        {Type: "s8", Size: 1, Default: []byte{200}},
		"258":        {Type: "u16", Size: 2, Default: []byte{2, 1}},
		"67305985":   {Type: "u32", Size: 4, Default: []byte{1, 2, 3, 4}},
		"-1":         {Type: "s64", Size: 8, Default: []byte{255, 255, 255, 255, 255, 255, 255, 255}},
		"0x0102":     {Type: "u8[2]", Size: 2, Default: []byte{1, 2}},
		"0x01020304": {Type: "struct a", Size: 4, Default: []byte{1, 2, 3, 4}},
		"0x":         {Type: "u32", Size: 0, Default: nil},
	} {
		if got := v.Value(littleEndian); got != want {
			t.Errorf("%s %v is %s, want %s", v.Type, v.Default, got, want)
		}
	}
	if got := (Variable{Type: "u16", Size: 2, Default: []byte{1, 2}}).Value(bigEndian); got != "258" {
		t.Errorf("big-endian 01 02 is %s", got)
	}
}

func TestReadRefuses(t *testing.T) {
	for name, content := range map[string][]byte{
		"nothing": nil, "a text": []byte("not an object"), "a magic number": []byte(elf.ELFMAG), "too much": make([]byte, MaxSize+1),
	} {
		if _, err := Read(content); err == nil || !strings.HasPrefix(err.Error(), "read eBPF object: it ") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// A section of zeros takes no space in the file, no matter how large it claims to be.
func TestReadOfAnObjectThatWouldTakeTheMemory(t *testing.T) {
	content := append([]byte{}, compiled(t, "globals.o")...)
	sections := binary.LittleEndian.Uint64(content[0x28:])
	const headerSize, typeAt, sizeAt = 64, 4, 32
	for i := range binary.LittleEndian.Uint16(content[0x3c:]) {
		header := content[sections+uint64(i)*headerSize:]
		if i > 0 && binary.LittleEndian.Uint32(header[typeAt:]) == uint32(elf.SHT_PROGBITS) {
			binary.LittleEndian.PutUint32(header[typeAt:], uint32(elf.SHT_NOBITS))
			binary.LittleEndian.PutUint64(header[sizeAt:], 3<<30)
		}
	}
	if _, err := Read(content); err == nil || !strings.Contains(err.Error(), "its sections have more than 64 MiB") {
		t.Errorf("error %v", err)
	}
}

// FuzzRead checks that no file makes Read panic, and that the descriptions of variables are
// consistent.
func FuzzRead(f *testing.F) {
	paths, _ := filepath.Glob(filepath.Join(objects, "*.o"))
	for _, path := range paths {
		f.Add(compiled(f, filepath.Base(path)))
	}
	f.Add([]byte(elf.ELFMAG))
	f.Fuzz(func(t *testing.T, file []byte) {
		object, err := Read(file)
		if err != nil {
			return
		}
		if len(object.Programs) == 0 {
			t.Error("there are no programs, and no error")
		}
		for _, v := range object.Globals {
			if int(v.Size) != len(v.Default) {
				t.Errorf("%s has %d bytes, and a default of %d", v.Name, v.Size, len(v.Default))
			}
			_ = v.Value(object.ByteOrder)
		}
	})
}
