// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package tracefs

import (
	"bytes"
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Print is the output of one bpf_printk call.
type Print struct {
	// Process is the name of the process that the program ran in or interrupted, and PID is the id
	// of its thread.
	Process string
	PID     int
	CPU     int
	// Elapsed is the time on the trace's clock, which starts when the node boots.
	Elapsed time.Duration
	Text    string
	// Stack are the functions on the kernel's stack, the innermost first.
	Stack []Frame
	// Lost is the number of events before this one that didn't fit into the buffer.
	Lost uint64
}

// Frame is a function on a stack.
type Frame struct {
	// Symbol is the kernel's symbol of the function. The symbol of a program contains its tag.
	Symbol  string
	Address uint64
}

// Parser converts the text of a trace to Prints. The text arrives in pieces, with the events of all
// CPUs.
type Parser struct {
	rest []byte
	// open are the prints whose stack hasn't arrived, by CPU.
	open map[int]*Print
	// current is the print that the next lines belong to, as part of its text or its stack.
	current *Print
	inStack bool
	lost    uint64
}

var (
	// For example: "  bash-1234    [001] ...21 13900.217919: bpf_trace_printk: hello".
	event = regexp.MustCompile(`^ *(.*)-(\d+) +(?:\([ \d-]*\) +)?\[(\d+)\] +\S+ +(\d+)\.(\d{6}): (bpf_trace_printk: |<stack trace>)(.*)$`)
	// For example: " => bpf_prog_ff458997a0b52653_say+0x41/0x4f <ffffffffc00324d5>".
	frame = regexp.MustCompile(`^ => (\S+?)(?:\+0x[0-9a-f]+(?:/0x[0-9a-f]+)?)?(?: \[\S+\])?(?: <([0-9a-f]+)>)?$`)
	// For example: "CPU:1 [LOST 12 EVENTS]".
	loss = regexp.MustCompile(`^CPU:\d+ \[LOST (\d+) EVENTS\]$`)
)

// maxText limits a text whose end doesn't arrive. The kernel limits one print to 1024 bytes.
const maxText = 64 << 10

// Parse adds text, and returns the prints that are complete. A print is complete when its stack is,
// or when another print of the same CPU follows. Programs can print lines that look like those of
// the trace.
func (p *Parser) Parse(text []byte) []Print {
	p.rest = append(p.rest, text...)
	var done []Print
	for {
		line, rest, found := bytes.Cut(p.rest, []byte{'\n'})
		if !found {
			break
		}
		p.rest = rest
		done = append(done, p.line(line)...)
	}
	if len(p.rest) > maxText {
		done = append(done, p.line(p.rest)...)
		p.rest = nil
	}
	p.rest = bytes.Clone(p.rest)
	return done
}

// Flush returns the prints that are waiting for their stacks.
func (p *Parser) Flush() []Print {
	done := p.end()
	for _, cpu := range slices.Sorted(maps.Keys(p.open)) {
		done = append(done, p.close(cpu)...)
	}
	p.current = nil
	slices.SortStableFunc(done, func(a, b Print) int { return cmp.Compare(a.Elapsed, b.Elapsed) })
	return done
}

// end ends a stack.
func (p *Parser) end() []Print {
	if !p.inStack {
		return nil
	}
	p.inStack = false
	return p.close(p.current.CPU)
}

// close returns the open print of a CPU.
func (p *Parser) close(cpu int) []Print {
	open, ok := p.open[cpu]
	if !ok {
		return nil
	}
	delete(p.open, cpu)
	if p.current == open {
		p.current = nil
	}
	open.Text = strings.TrimRight(open.Text, "\n")
	return []Print{*open}
}

func (p *Parser) line(line []byte) []Print {
	if m := event.FindSubmatch(line); m != nil {
		return p.event(m)
	}
	if m := loss.FindSubmatch(line); m != nil {
		n, _ := strconv.ParseUint(string(m[1]), 10, 64) // the expression matches only digits
		p.lost += n
		return p.end()
	}
	if p.current == nil {
		return nil
	}
	if p.inStack {
		m := frame.FindSubmatch(line)
		if m == nil {
			return p.end()
		}
		address, _ := strconv.ParseUint(string(m[2]), 16, 64) // 0 if it is absent
		p.current.Stack = append(p.current.Stack, Frame{string(m[1]), address})
		return nil
	}
	if len(p.current.Text)+len(line) < maxText {
		p.current.Text += "\n" + string(line)
	}
	return nil
}

func (p *Parser) event(m [][]byte) []Print {
	pid, _ := strconv.Atoi(string(m[2]))
	cpu, _ := strconv.Atoi(string(m[3]))
	done := p.end()
	if string(m[6]) == "<stack trace>" {
		p.current = p.open[cpu]
		if p.current != nil && p.current.PID != pid { // it belongs to a lost print
			return append(done, p.close(cpu)...)
		}
		p.inStack = p.current != nil
		return done
	}
	done = append(done, p.close(cpu)...)
	seconds, _ := strconv.ParseInt(string(m[4]), 10, 64)
	micros, _ := strconv.ParseInt(string(m[5]), 10, 64)
	p.current = &Print{
		Process: string(m[1]), PID: pid, CPU: cpu, Text: string(m[7]), Lost: p.lost,
		Elapsed: time.Duration(seconds)*time.Second + time.Duration(micros)*time.Microsecond,
	}
	if p.open == nil {
		p.open = map[int]*Print{}
	}
	p.open[cpu] = p.current
	p.lost = 0
	return done
}
