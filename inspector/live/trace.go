// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package live

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/bpfman/bpfman-operator/inspector/kernel"
	"github.com/bpfman/bpfman-operator/inspector/tracefs"
	"github.com/bpfman/bpfman-operator/internal/live"
)

// Trace writes what the programs with the given ids print from now on. Without ids, it includes all programs.
func Trace(ctx context.Context, ids []uint32, in io.Reader, out io.Writer) error {
	ctx, cancel := whileRead(ctx, in, silence)
	defer cancel()
	instance, err := tracefs.New()
	if err != nil {
		return err
	}
	t := tracer{wanted: ids, answers: linesTo(out)}
	err = t.run(ctx, instance)
	if ctx.Err() != nil {
		err = nil
	}
	return errors.Join(err, instance.Close())
}

type tracer struct {
	wanted    []uint32
	answers   lines
	functions functions
	parser    tracefs.Parser
}

func (t *tracer) run(ctx context.Context, instance *tracefs.Instance) error {
	// Confirm the start: output of programs from now on isn't missed.
	if err := errors.Join(t.answers.write(live.Print{}), t.answers.flush()); err != nil {
		return err
	}
	buffer := make([]byte, 64<<10)
	for {
		n, err := instance.Read(ctx, buffer)
		if err != nil {
			return err
		}
		prints := t.parser.Parse(buffer[:n])
		if n == 0 {
			prints = t.parser.Flush() // their stacks would have arrived by now
		}
		if len(prints) > 0 {
			t.functions.update()
		}
		for _, p := range prints {
			if err := t.print(p); err != nil {
				return err
			}
		}
		if err := t.answers.flush(); err != nil {
			return err
		}
	}
}

func (t *tracer) print(p tracefs.Print) error {
	programs := t.functions.programs(p.Stack)
	if len(t.wanted) > 0 && !slices.ContainsFunc(programs, func(p live.Program) bool { return slices.Contains(t.wanted, p.ID) }) {
		return nil
	}
	return t.answers.write(live.Print{
		Elapsed: p.Elapsed, CPU: p.CPU, Process: p.Process, PID: p.PID,
		Programs: programs, Text: p.Text, Lost: p.Lost,
	})
}

// functions contains the kernel's functions of programs.
type functions struct {
	ids   []uint32
	known []function
}

// function is a function of a program, as compiled by the kernel.
type function struct {
	program live.Program
	// symbol is the prefix of the symbols of the program's functions. It contains the program's tag.
	symbol string
	// start and end are the addresses, or 0 if the kernel doesn't report them.
	start, end uint64
}

// programs returns the programs that a stack belongs to: the one with an address on the stack, or else all
// programs whose tag is on the stack.
func (f *functions) programs(stack []tracefs.Frame) []live.Program {
	ours := slices.DeleteFunc(slices.Clone(stack), func(f tracefs.Frame) bool { return !strings.HasPrefix(f.Symbol, "bpf_prog_") })
	if len(ours) == 0 {
		return nil
	}
	return find(f.known, ours)
}

// find returns the program of the innermost known function.
func find(known []function, stack []tracefs.Frame) []live.Program {
	var found []live.Program
	for _, frame := range stack {
		for _, f := range known {
			if f.start != 0 && f.start <= frame.Address && frame.Address < f.end {
				return []live.Program{f.program}
			}
			if f.start == 0 && strings.HasPrefix(frame.Symbol, f.symbol) && !slices.Contains(found, f.program) {
				found = append(found, f.program)
			}
		}
	}
	return found
}

// update reads the functions of all programs again if the programs have changed, because the kernel reuses
// addresses. It leaves out programs that it can't read.
func (f *functions) update() {
	there, err := kernel.List()
	if err != nil || slices.Equal(there.Programs, f.ids) {
		return
	}
	f.ids, f.known = there.Programs, nil
	for _, id := range there.Programs {
		f.known = append(f.known, functionsOf(ebpf.ProgramID(id))...)
	}
}

// functionsOf returns the functions of a program.
func functionsOf(id ebpf.ProgramID) []function {
	program, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return nil
	}
	defer program.Close()
	info, err := program.Info()
	if err != nil {
		return nil
	}
	one := function{
		program: live.Program{ID: uint32(id), Name: info.Name, Type: kernel.ProgramType(uint32(info.Type))},
		symbol:  "bpf_prog_" + info.Tag,
	}
	addresses, _ := info.JitedKsymAddrs()
	lengths, _ := info.JitedFuncLens()
	var out []function
	for i, address := range addresses {
		if address == 0 || i >= len(lengths) {
			continue // without CAP_SYSLOG, the kernel hides addresses
		}
		one.start, one.end = uint64(address), uint64(address)+uint64(lengths[i])
		out = append(out, one)
	}
	if len(out) == 0 {
		return []function{one}
	}
	return out
}
