// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package object finds out which kernel functions an eBPF object calls, and which
// types of maps it declares.
package object

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
	// MaxLayer is the maximum compressed size of an image's layer, in bytes. maxObject
	// is the maximum size of its first file. They are the same as the agent's limits.
	MaxLayer  = 8 << 20
	maxObject = 8 << 20
)

// Used contains what bytecode uses, sorted: helpers with their names in bpf(7), and
// types of maps with bpftool's names.
type Used struct {
	Helpers  []string
	MapTypes []string
}

// UnfitError describes why an image's bytecode is invalid.
type UnfitError struct{ Text string }

func (e *UnfitError) Error() string { return e.Text }

// OfLayer reads the first file of an image's layer, like the daemon of v0.6.0.
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

// Of reads an object file, which isn't trusted.
func Of(object []byte) (used Used, err error) {
	defer func() {
		// The parser is a library, and can panic on malicious input.
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

// called returns the kernel function that an instruction calls, or "".
func called(i *asm.Instruction) string {
	if i.OpCode.Class() != asm.JumpClass && i.OpCode.Class() != asm.Jump32Class {
		return ""
	}
	switch {
	case i.IsKfuncCall():
		return "kfunc:" + i.Reference()
	case i.IsBuiltinCall():
		return helper(asm.BuiltinFunc(i.Constant)) //nolint:gosec // the number of a helper has 32 bits
	}
	return ""
}

// helper returns the name of a helper in linux/bpf.h. The library has it in camel case.
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
