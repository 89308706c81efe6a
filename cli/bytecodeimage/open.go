// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bytecodeimage

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// maxFile is the maximum size of a file that Open reads, in bytes: executables are larger than their objects.
const maxFile = 512 << 20

// executables maps the machines of executables to architectures.
var executables = map[elf.Machine]string{
	elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64", elf.EM_PPC64: "ppc64le", elf.EM_RISCV: "riscv64", elf.EM_S390: "s390x",
}

// Open reads the eBPF objects in a file: the file itself, or those that an executable or a library embeds. The
// objects of an executable are for its architecture. A file that is neither is returned as it is, so that reading it
// as an object says what is wrong.
func Open(path string) ([]File, error) {
	content, err := contentOf(path)
	if err != nil {
		return nil, fmt.Errorf("read object: %w", err)
	}
	name := filepath.Base(path)
	f, err := elf.NewFile(bytes.NewReader(content))
	if err != nil || f.Type != elf.ET_EXEC && f.Type != elf.ET_DYN {
		return []File{{Name: name, Content: content, Platform: platformOf(name)}}, nil //nolint:nilerr // see above
	}
	objects := embedded(content)
	if len(objects) == 0 {
		return nil, fmt.Errorf("%s is an executable or a library without an eBPF object in it: specify the object file", path)
	}
	name, _, _ = strings.Cut(name, ".so")
	files := make([]File, 0, len(objects))
	for n, object := range objects {
		file := File{Name: name + ".o", Content: object, Platform: executables[f.Machine]}
		if len(objects) > 1 {
			file.Name = fmt.Sprintf("%s-%d.o", name, n+1)
		}
		files = append(files, file)
	}
	return files, nil
}

func contentOf(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return atMost(file, maxFile)
}

// generated matches the names of the files that bpf2go generates, such as counter_arm64_bpfel.o.
var generated = regexp.MustCompile(`_(?:(x86|arm64|powerpc|riscv|s390)_)?(bpfe[lb])\.o$`)

// platformOf returns the platform that a file's name contains, or an empty string.
func platformOf(name string) string {
	match := generated.FindStringSubmatch(name)
	if match == nil {
		return ""
	}
	architectures := map[string]string{"x86": "amd64", "arm64": "arm64", "powerpc": "ppc64le", "riscv": "riscv64", "s390": "s390x"}
	return cmp.Or(architectures[match[1]], match[2])
}

// embedded returns the different eBPF objects in an executable. Programs with skeletons of libbpf, with bpf2go, or
// with Aya contain their objects as they are.
func embedded(content []byte) [][]byte {
	var found [][]byte
	for {
		at := bytes.Index(content, []byte(elf.ELFMAG))
		if at < 0 {
			return found
		}
		content = content[at:]
		size := objectSize(content)
		object := content[:size]
		if size > 0 && !slices.ContainsFunc(found, func(other []byte) bool { return bytes.Equal(other, object) }) {
			found = append(found, object)
		}
		content = content[max(size, uint64(len(elf.ELFMAG))):]
	}
}

// objectSize returns the size of the eBPF object that content begins with, or 0 if it begins with something else.
func objectSize(content []byte) uint64 {
	f, err := elf.NewFile(bytes.NewReader(content))
	if err != nil || f.Class != elf.ELFCLASS64 || f.Type != elf.ET_REL || f.Machine != elf.EM_BPF {
		return 0
	}
	var header elf.Header64
	if _, err := binary.Decode(content, f.ByteOrder, &header); err != nil {
		return 0
	}
	limit := uint64(len(content))
	end := uint64(0)
	take := func(offset, size uint64) bool {
		end = max(end, offset+size)
		return offset <= limit && size <= limit-offset
	}
	if !take(header.Shoff, uint64(header.Shnum)*uint64(header.Shentsize)) {
		return 0
	}
	for _, section := range f.Sections {
		if section.Type != elf.SHT_NOBITS && !take(section.Offset, section.FileSize) {
			return 0
		}
	}
	return end
}
