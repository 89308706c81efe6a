// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package live holds what a node's inspector answers to questions that are asked while
// somebody waits: what a map holds (dump), which programs take time (top), and what
// programs print (trace). The questions are commands of bpfman-inspector, run in its
// container by `kubectl exec`, so that the API server authenticates, authorizes and
// audits them; each line of their output is one of these messages in JSON.
//
// Who asks keeps the standard input open and writes to it, whatever it likes, at least
// every [Silence]; the command ends when that input ends, or is silent for longer. So
// nothing goes on after its reader has died.
package live

import (
	"encoding/json"
	"time"
)

// Commands of bpfman-inspector.
const (
	CommandDump  = "dump"
	CommandTop   = "top"
	CommandTrace = "trace"
)

// Silence is how long a command waits for its reader to write before it ends, and
// KeepAlive how often a reader should.
const (
	Silence   = 30 * time.Second
	KeepAlive = 5 * time.Second
)

// Program is a program that a message is about.
type Program struct {
	// ID is the kernel's.
	ID uint32 `json:"id"`
	// Name is the kernel's, of 15 bytes at most.
	Name string `json:"name,omitempty"`
	// Type as in a BpfNode, such as sched_cls.
	Type string `json:"type,omitempty"`
}

// Usage is a line of top: what ran in an interval.
type Usage struct {
	// Elapsed is how long the interval was. It is zero in the first line, which tells
	// that kernel statistics are on.
	Elapsed time.Duration `json:"elapsedNanoseconds"`
	// CPUs that the node has.
	CPUs int `json:"cpus"`
	// Programs that ran in the interval.
	Programs []ProgramUsage `json:"programs,omitempty"`
}

// ProgramUsage is what one program took in an interval.
type ProgramUsage struct {
	Program
	// RunTime is time on a CPU, summed over CPUs.
	RunTime time.Duration `json:"runTimeNanoseconds"`
	// Runs is how often it ran.
	Runs uint64 `json:"runs"`
}

// DumpLine is a line of dump, with one of its fields: first the map, then its entries,
// then the end; and again from the first, where the dump is repeated.
type DumpLine struct {
	Map   *Map   `json:"map,omitempty"`
	Entry *Entry `json:"entry,omitempty"`
	End   *End   `json:"end,omitempty"`
}

// Map is the map that is dumped.
type Map struct {
	// ID is the kernel's.
	ID uint32 `json:"id"`
	// Name is the kernel's, of 15 bytes at most.
	Name string `json:"name,omitempty"`
	// Type as in a BpfNode, such as percpu_hash.
	Type string `json:"type"`
	// KeySize and ValueSize are in bytes.
	KeySize   uint32 `json:"keySize"`
	ValueSize uint32 `json:"valueSize"`
	// MaxEntries is the number of entries that there is room for.
	MaxEntries uint32 `json:"maxEntries"`
	// PerCPU tells that each entry has a value for each CPU.
	PerCPU bool `json:"perCPU,omitempty"`
	// HasBTF tells that keys and values are decoded by the map's types. Without, they
	// are strings of hexadecimal digits after 0x.
	HasBTF bool `json:"hasBTF,omitempty"`
}

// Entry is one entry of a map, in JSON: structures are objects with fields in their
// order, integers are numbers, char arrays strings, other bytes hexadecimal digits.
type Entry struct {
	Key json.RawMessage `json:"key"`
	// Value is the value, or, of a map with values for each CPU, their sum, where they
	// are numbers or made of such.
	Value json.RawMessage `json:"value,omitempty"`
	// PerCPU are the values of the CPUs, in order.
	PerCPU []json.RawMessage `json:"perCPU,omitempty"`
}

// End ends a dump.
type End struct {
	// Entries is the number of entries that were printed.
	Entries int `json:"entries"`
	// Truncated tells that there are more, beyond the limit that was asked for.
	Truncated bool `json:"truncated,omitempty"`
	// Changed tells that the map changed so much meanwhile that entries may be missing.
	Changed bool `json:"changed,omitempty"`
}

// Print is a line of trace: what a program printed with bpf_printk.
type Print struct {
	// Elapsed is the time since the node's boot.
	Elapsed time.Duration `json:"sinceBootNanoseconds,omitempty"`
	// CPU that the program ran on.
	CPU int `json:"cpu"`
	// Process that the program ran in, and its thread's id. For a program that runs on
	// packets it is whichever was interrupted.
	Process string `json:"process,omitempty"`
	PID     int    `json:"pid,omitempty"`
	// Programs is the program that printed. Where several with the same instructions are
	// loaded and the kernel doesn't tell them apart, all of these; where it can't be
	// told, none.
	Programs []Program `json:"programs,omitempty"`
	// Text is what it printed.
	Text string `json:"text"`
	// Lost is the number of prints before this one that nobody read in time.
	Lost uint64 `json:"lost,omitempty"`
}
