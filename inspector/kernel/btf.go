// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package kernel

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// kernelBTF is the directory where the kernel exposes the BTF of itself and of its
// modules.
const kernelBTF = "/sys/kernel/btf"

const vmlinux = "vmlinux"

// ProgramTypes returns the types in a program's BTF. A program without BTF is an error.
func ProgramTypes(program uint32) (*btf.Spec, error) {
	p, err := ebpf.NewProgramFromID(ebpf.ProgramID(program))
	if err != nil {
		return nil, fmt.Errorf("open program %d: %w", program, err)
	}
	defer p.Close()
	types, err := p.Handle()
	if err != nil {
		return nil, fmt.Errorf("open the types of program %d: %w", program, err)
	}
	defer types.Close()
	spec, err := types.Spec(nil)
	if err != nil {
		return nil, fmt.Errorf("read the types of program %d: %w", program, err)
	}
	return spec, nil
}

// programFunction returns the name of a function in a program.
func programFunction(program, typeID uint32) (string, error) {
	spec, err := ProgramTypes(program)
	if err != nil {
		return "", err
	}
	of, err := spec.TypeByID(btf.TypeID(typeID))
	if err != nil {
		return "", fmt.Errorf("type of program %d: %w", program, err)
	}
	return of.TypeName(), nil
}

// kernelFunctionOf returns the name of a function in the kernel or in a module. It
// returns errNotKernel if the types belong to a program.
func kernelFunctionOf(object, typeID uint32) (string, error) {
	handle, err := btf.NewHandleFromID(btf.ID(object))
	if errors.Is(err, os.ErrNotExist) {
		return "", errNotKernel
	}
	if err != nil {
		return "", fmt.Errorf("open types %d: %w", object, err)
	}
	defer handle.Close()
	info, err := handle.Info()
	if err != nil {
		return "", fmt.Errorf("read types %d: %w", object, err)
	}
	if !info.IsKernel {
		return "", errNotKernel
	}
	base, err := os.Open(filepath.Join(kernelBTF, vmlinux))
	if err != nil {
		return "", fmt.Errorf("open the kernel's types: %w", err)
	}
	defer base.Close()
	if info.Name == vmlinux {
		return typeName(typeID, base)
	}
	module, err := os.Open(filepath.Join(kernelBTF, filepath.Base(info.Name)))
	if err != nil {
		return "", fmt.Errorf("open a module's types: %w", err)
	}
	defer module.Close()
	return typeName(typeID, base, module)
}

var errNotKernel = errors.New("the types aren't the kernel's")

var errNoType = errors.New("no such type")

// typeName returns the name of a type in BTF. If there is a second part, it continues
// the first. typeName reads the types sequentially and doesn't store them. cilium/ebpf
// would cache the kernel's types permanently, which takes twice as much memory as the
// inspector has.
func typeName(id uint32, parts ...io.ReaderAt) (string, error) {
	first := uint32(1) // 0 is void
	var strings []*io.SectionReader
	for _, part := range parts {
		var header btfHeader
		if err := binary.Read(io.NewSectionReader(part, 0, btfHeaderSize), binary.NativeEndian, &header); err != nil {
			return "", fmt.Errorf("read BTF: %w", err)
		}
		if header.Magic != btfMagic {
			return "", errors.New("read BTF: the data isn't BTF")
		}
		strings = append(strings, io.NewSectionReader(part, int64(header.HeaderLength)+int64(header.StringOffset), int64(header.StringLength)))
		types := io.NewSectionReader(part, int64(header.HeaderLength)+int64(header.TypeOffset), int64(header.TypeLength))
		count, name, err := walkTypes(types, id-first)
		if err == nil {
			return stringAt(name, strings)
		}
		if !errors.Is(err, io.EOF) {
			return "", fmt.Errorf("read BTF: %w", err)
		}
		first += count
	}
	return "", errNoType
}

const (
	btfMagic      = 0xeb9f
	btfHeaderSize = 24
)

// btfHeader is the struct btf_header of linux/btf.h. The numbers below are also from
// this file.
type btfHeader struct {
	Magic                                                            uint16
	Version, Flags                                                   uint8
	HeaderLength, TypeOffset, TypeLength, StringOffset, StringLength uint32
}

// walkTypes skips types until the one at index, and returns the offset of its name. At
// the end of the types, it returns io.EOF and the number of types.
func walkTypes(types io.Reader, index uint32) (count, name uint32, err error) {
	reader := bufio.NewReaderSize(types, 64<<10)
	var fixed [12]byte
	for ; ; count++ {
		if _, err := io.ReadFull(reader, fixed[:]); err != nil {
			return count, 0, err
		}
		if count == index {
			return count, binary.NativeEndian.Uint32(fixed[:]), nil
		}
		if _, err := reader.Discard(extraBytes(binary.NativeEndian.Uint32(fixed[4:]))); err != nil {
			return count, 0, fmt.Errorf("type %d is truncated: %w", count, io.ErrUnexpectedEOF)
		}
	}
}

// extraBytes returns the number of bytes after a type's fixed part.
func extraBytes(info uint32) int {
	kind, members := info>>24&0x1f, int(info&0xffff)
	switch kind {
	case 1, 14, 17: // int, var, decl_tag
		return 4
	case 3: // array
		return 12
	case 4, 5, 15, 19: // struct, union, datasec, enum64
		return 12 * members
	case 6, 13: // enum, func_proto
		return 8 * members
	}
	return 0
}

// maxName is longer than any name in the kernel.
const maxName = 1024

func stringAt(offset uint32, sections []*io.SectionReader) (string, error) {
	at := int64(offset)
	for _, section := range sections {
		if at >= section.Size() {
			at -= section.Size()
			continue
		}
		name := make([]byte, maxName)
		n, err := section.ReadAt(name, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return "", fmt.Errorf("read a name in BTF: %w", err)
		}
		name, _, _ = bytes.Cut(name[:n], []byte{0})
		return string(name), nil
	}
	return "", errNoType
}
