// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package instructions says which functions of the kernel an eBPF object calls,
// and which types of maps it declares.
package instructions

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/bpfman/bpfman-operator/apis/maptype"
)

const (
	// MaxLayer is the most that an image's layer may have, packed, in bytes, and
	// maxObject what its first file may have: as much as the agent reads.
	MaxLayer  = 8 << 20
	maxObject = 8 << 20
)

// Used is what bytecode uses, in the order of the alphabet: helpers as bpf(7)
// names them, types of maps as bpftool does.
type Used struct {
	Helpers  []string
	MapTypes []string
}

// UnfitError says what is wrong with an image's bytecode.
type UnfitError struct{ Text string }

func (e *UnfitError) Error() string { return e.Text }

// OfLayer reads the first file of an image's layer, which is what the daemon of
// v0.6.0 takes.
func OfLayer(layer []byte) (Used, error) {
	unzipped, err := gzip.NewReader(bytes.NewReader(layer))
	if err != nil {
		return Used{}, &UnfitError{"the image's layer isn't a gzipped tar archive"}
	}
	archive := tar.NewReader(io.LimitReader(unzipped, maxObject+4096))
	header, err := archive.Next()
	switch {
	case errors.Is(err, io.EOF):
		return Used{}, &UnfitError{"the image's layer contains no files"}
	case err != nil:
		return Used{}, &UnfitError{"the image's layer isn't a gzipped tar archive"}
	case header.Size > maxObject:
		return Used{}, &UnfitError{fmt.Sprintf("the image's first file has more than %d MiB", maxObject>>20)}
	}
	object, err := io.ReadAll(archive)
	if err != nil {
		return Used{}, &UnfitError{"the image's first file can't be read to its end"}
	}
	return Of(object)
}

// Of reads an object file. It may be anything.
func Of(object []byte) (used Used, err error) {
	defer func() {
		// The parser is a library's, and may not cope with what is made to harm it.
		if r := recover(); r != nil {
			used, err = Used{}, &UnfitError{"the bytecode can't be read: it isn't a valid object file"}
		}
	}()
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(object))
	if err != nil {
		return Used{}, &UnfitError{"the bytecode can't be read: " + firstLine(err)}
	}
	helpers, types := map[string]bool{}, map[string]bool{}
	for _, program := range spec.Programs {
		for i := range program.Instructions {
			if name := called(&program.Instructions[i]); name != "" {
				helpers[name] = true
			}
		}
	}
	for _, m := range spec.Maps {
		for ; m != nil; m = m.InnerMap {
			types[mapType(m.Type)] = true
		}
	}
	return Used{slices.Sorted(maps.Keys(helpers)), slices.Sorted(maps.Keys(types))}, nil
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	if len(line) > 300 {
		line = line[:300] + "…"
	}
	return strings.ToValidUTF8(line, "?")
}

// called is the function of the kernel's that an instruction calls, if it does.
func called(i *asm.Instruction) string {
	if i.OpCode.Class() != asm.JumpClass && i.OpCode.Class() != asm.Jump32Class {
		return ""
	}
	switch {
	case i.IsKfuncCall():
		return "kfunc:" + i.Reference()
	case i.IsBuiltinCall():
		return helper(asm.BuiltinFunc(i.Constant)) //nolint:gosec // a helper's number has 32 bits
	}
	return ""
}

// helper is a helper's name in linux/bpf.h, which the library has in camel case.
func helper(f asm.BuiltinFunc) string {
	name, known := strings.CutPrefix(f.String(), "Fn")
	if !known || f == asm.FnUnspec {
		return "unknown#" + strconv.FormatUint(uint64(f), 10)
	}
	var b strings.Builder
	b.WriteString("bpf")
	for _, r := range name {
		if unicode.IsUpper(r) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

func mapType(t ebpf.MapType) string {
	if name, known := maptype.Name(uint32(t)); known {
		return name
	}
	return "unknown#" + strconv.FormatUint(uint64(t), 10)
}
