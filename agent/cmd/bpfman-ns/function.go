// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
)

// sttIndirect is STT_GNU_IFUNC of Linux's ELF ABI: the symbol's address is that of a function that chooses an
// implementation when a process is started.
const sttIndirect = elf.SymType(10)

// offsetOf returns the offset in an ELF file of a place in a function.
func offsetOf(file io.ReaderAt, function string, offset uint64) (at uint64, err error) {
	defer func() { // a malformed file can make the parser panic
		if p := recover(); p != nil {
			err = fmt.Errorf("parse ELF file: %v", p)
		}
	}()
	f, err := elf.NewFile(file)
	if err != nil {
		return 0, fmt.Errorf("parse ELF file: %w", err)
	}
	if f.Type != elf.ET_EXEC && f.Type != elf.ET_DYN {
		return 0, errors.New("it isn't an executable or a shared library")
	}
	static, err := f.Symbols()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		return 0, fmt.Errorf("read its symbols: %w", err)
	}
	dynamic, err := f.DynamicSymbols()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		return 0, fmt.Errorf("read its dynamic symbols: %w", err)
	}
	symbol, err := choose(static, dynamic, function)
	if err != nil {
		return 0, err
	}
	if err := within(symbol, offset); err != nil {
		return 0, err
	}
	return inFile(f.Progs, symbol.Value) + offset, nil
}

// within returns an error if an offset is outside of a function. The size of one that is written in assembly can be
// unknown, which is 0.
func within(symbol elf.Symbol, offset uint64) error {
	if symbol.Size != 0 && offset >= symbol.Size {
		return fmt.Errorf("function %s has %d bytes, and the offset is %d", symbol.Name, symbol.Size, offset)
	}
	return nil
}

// choose returns the symbol that a program which is linked now would use: the default version of a function if it has
// several, as memcpy in libc does.
func choose(static, dynamic []elf.Symbol, function string) (elf.Symbol, error) {
	var found *elf.Symbol
	best := 0
	consider := func(symbols []elf.Symbol, rank func(elf.Symbol) int) {
		for i, s := range symbols {
			kind := elf.ST_TYPE(s.Info)
			if s.Name != function || kind != elf.STT_FUNC && kind != sttIndirect {
				continue
			}
			if r := rank(s); r >= best {
				found, best = &symbols[i], r
			}
		}
	}
	consider(static, func(s elf.Symbol) int {
		if s.Section == elf.SHN_UNDEF {
			return 0
		}
		return 1
	})
	consider(dynamic, func(s elf.Symbol) int {
		switch {
		case s.Section == elf.SHN_UNDEF:
			return 0
		case s.HasVersion && s.VersionIndex.IsHidden():
			return 2
		}
		return 3
	})
	switch {
	case found == nil:
		return elf.Symbol{}, fmt.Errorf("it doesn't have the function %s", function)
	case elf.ST_TYPE(found.Info) == sttIndirect:
		return elf.Symbol{}, fmt.Errorf("function %s is indirect: processes call one of several implementations, which have other names", function)
	case found.Value == 0:
		return elf.Symbol{}, fmt.Errorf("function %s isn't in it, but in a library that it uses", function)
	}
	return *found, nil
}

// inFile returns the offset in the file of an address.
func inFile(segments []*elf.Prog, address uint64) uint64 {
	for _, s := range segments {
		if s.Type == elf.PT_LOAD && s.Flags&elf.PF_X != 0 && s.Vaddr <= address && address-s.Vaddr < s.Memsz {
			return address - s.Vaddr + s.Off
		}
	}
	return address
}
