// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package live defines the output of the commands of bpfman-inspector that answer
// questions about a node interactively: the content of a map (dump), the events in a ring
// buffer (tail), the programs that use CPU time (top), the output of programs (trace), and
// why the kernel refuses a program (log). `kubectl exec` runs these
// commands in the inspector's container, so the API server authenticates, authorizes,
// and audits them. Each line of their output is one of these messages in JSON.
//
// The client keeps standard input open, and writes any bytes to it at least every
// [Silence]. The command ends when standard input is closed, or receives nothing for
// longer than that. This prevents commands from running after their client has died.
package live

import (
	"encoding/json"
	"time"
)

// The commands of bpfman-inspector.
const (
	CommandDump  = "dump"
	CommandTail  = "tail"
	CommandTop   = "top"
	CommandTrace = "trace"
	CommandLog   = "log"
)

// ExitAbsent is the exit code of a command about a map or a program that isn't on the node. Other failures have other codes.
const ExitAbsent = 3

// Silence is how long a command waits for input before it ends. KeepAlive is the
// interval at which a client should write.
const (
	Silence   = 30 * time.Second
	KeepAlive = 5 * time.Second
)

// Program identifies a program that a message is about.
type Program struct {
	// ID is the kernel's id of the program.
	ID uint32 `json:"id"`
	// Name is the kernel's name of the program, with at most 15 bytes.
	Name string `json:"name,omitempty"`
	// Type is the type, with the name that a BpfNode has, such as sched_cls.
	Type string `json:"type,omitempty"`
}

// Usage is one line of top: the programs that ran in an interval.
type Usage struct {
	// Elapsed is the length of the interval. It is zero in the first line, which only
	// confirms that the kernel's statistics are enabled.
	Elapsed time.Duration `json:"elapsedNanoseconds"`
	// CPUs is the number of the node's CPUs.
	CPUs int `json:"cpus"`
	// Programs are the programs that ran in the interval.
	Programs []ProgramUsage `json:"programs,omitempty"`
}

// ProgramUsage is the CPU time that one program used in an interval.
type ProgramUsage struct {
	Program
	// RunTime is the time on a CPU, as the sum over all CPUs.
	RunTime time.Duration `json:"runTimeNanoseconds"`
	// Runs is the number of times that the program ran.
	Runs uint64 `json:"runs"`
}

// DumpLine is one line of dump. Exactly one of its fields is set. The lines are the map,
// then its entries, then the end. If the dump is repeated, the sequence starts again
// with the map.
type DumpLine struct {
	Map   *Map   `json:"map,omitempty"`
	Entry *Entry `json:"entry,omitempty"`
	End   *End   `json:"end,omitempty"`
}

// Map is the map that is dumped.
type Map struct {
	// ID is the kernel's id of the map.
	ID uint32 `json:"id"`
	// Name is the kernel's name of the map, with at most 15 bytes.
	Name string `json:"name,omitempty"`
	// Type is the type, with the name that a BpfNode has, such as percpu_hash.
	Type string `json:"type"`
	// KeySize and ValueSize are in bytes.
	KeySize   uint32 `json:"keySize"`
	ValueSize uint32 `json:"valueSize"`
	// MaxEntries is the maximum number of entries.
	MaxEntries uint32 `json:"maxEntries"`
	// PerCPU means that each entry has a value for each CPU.
	PerCPU bool `json:"perCPU,omitempty"`
	// HasBTF means that keys and values are decoded with the map's BTF. Without BTF,
	// they are strings of hexadecimal digits after 0x.
	HasBTF bool `json:"hasBTF,omitempty"`
}

// Entry is one entry of a map, in JSON. Structs are objects with their fields in order,
// integers are numbers, and char arrays are strings. Other bytes are hexadecimal digits.
type Entry struct {
	// Key is the key, or the name of a global variable.
	Key json.RawMessage `json:"key"`
	// Value is the value. In a per-CPU map, it is the sum of all values, if they consist
	// of numbers.
	Value json.RawMessage `json:"value,omitempty"`
	// PerCPU are the values of the CPUs, in the order of the CPUs.
	PerCPU []json.RawMessage `json:"perCPU,omitempty"`
	// Variable is present if the entry is a global variable.
	Variable *Variable `json:"variable,omitempty"`
}

// Variable is a global variable. The kernel has one map for each section of variables, with a single value.
type Variable struct {
	// Offset and Size are the variable's place in the value of the map, in bytes.
	Offset uint32 `json:"offset"`
	Size   uint32 `json:"size"`
	// Type is the type, such as u64, u32[4], or struct flow. It is empty if it has no short name.
	Type string `json:"type,omitempty"`
}

// End ends a dump.
type End struct {
	// Entries is the number of entries that were printed.
	Entries int `json:"entries"`
	// Truncated means that the map has more entries than the requested limit.
	Truncated bool `json:"truncated,omitempty"`
	// Changed means that the map changed during the dump so much that entries can be
	// missing.
	Changed bool `json:"changed,omitempty"`
}

// TailLine is one line of tail. Exactly one of its fields is set. The first line is the map,
// and confirms that no later event is missed.
type TailLine struct {
	Map   *Map   `json:"map,omitempty"`
	Event *Event `json:"event,omitempty"`
	// Overwritten is the number of bytes with events, after the previous one, that the
	// kernel overwrote before the command read them.
	Overwritten uint64 `json:"overwritten,omitempty"`
	// Neglected is present if the ring buffer is full, and nothing has read it for a while.
	Neglected *Neglected `json:"neglected,omitempty"`
}

// Event is what a program sent to a ring buffer.
type Event struct {
	// Time is when the command read the event, by the node's clock.
	Time time.Time `json:"time"`
	// Type is the name of the type by which the event is decoded. If it is empty, the value
	// is a string of hexadecimal digits after 0x.
	Type string `json:"type,omitempty"`
	// Value is the event in JSON, as in an [Entry].
	Value json.RawMessage `json:"value"`
	// Length is the number of bytes that the program sent. Of long events, Value has only
	// the beginning.
	Length uint32 `json:"length"`
	// Fits lists types that have the event's length, if there are several, so that it isn't
	// known which one it has.
	Fits []string `json:"fits,omitempty"`
}

// Neglected is about a full ring buffer that no application reads. The kernel refuses new
// events then.
type Neglected struct {
	// Bytes is the number of bytes that no application has read.
	Bytes uint64 `json:"bytes"`
}

// LogLine is one line of log: a part of what the kernel's verifier said about an object that the node couldn't load.
type LogLine struct {
	// Text is the next part of the text. It has whole characters.
	Text string `json:"text"`
	// End means that the text ends here. The next line begins another one.
	End bool `json:"end,omitempty"`
}

// Print is one line of trace: what a program printed with bpf_printk.
type Print struct {
	// Elapsed is the time since the node's boot.
	Elapsed time.Duration `json:"sinceBootNanoseconds,omitempty"`
	// CPU is the CPU that the program ran on.
	CPU int `json:"cpu"`
	// Process is the name of the process that the program ran in, and PID is the id of
	// its thread. For a program that runs on packets, this can be any interrupted
	// process.
	Process string `json:"process,omitempty"`
	PID     int    `json:"pid,omitempty"`
	// Programs is the program that printed. If several loaded programs have the same
	// instructions and the kernel doesn't distinguish them, it lists all of them. If the
	// program isn't known, it is empty.
	Programs []Program `json:"programs,omitempty"`
	// Text is the printed text.
	Text string `json:"text"`
	// Lost is the number of prints before this one that the kernel overwrote before the
	// command read them.
	Lost uint64 `json:"lost,omitempty"`
}
