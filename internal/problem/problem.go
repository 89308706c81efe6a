// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package problem names what can be wrong with an object, and says what to do about it. From its table come what
// `kubectl bpfman why` suggests, and the tables in docs/status.md, which `make generate` writes.
package problem

// Reason identifies a problem.
type Reason string

// Row says what to do about a problem.
type Row struct {
	Reason Reason
	// Messages are what the messages of the problem have in common, with "…" for any text. Daemon are those of the daemon, its
	// loader, and the kernel.
	Messages, Daemon []string
	// ToDo is the cause, unless the message says it, and one thing to do. Links are the parts of it that are links on the page.
	ToDo  string
	Links []Link
}

// Link is a text and the page, relative to docs, to which it leads.
type Link struct{ Text, Page string }

// Section is a part of the table.
type Section struct {
	Title string
	Rows  []Row
}

// Table returns all problems.
func Table() []Section {
	return []Section{
		{"Nodes", nodes},
		{"Rollouts", rollouts},
		{"Fields", fields},
		{"Images and registries", registries},
		{"The form of an image", images},
		{"The object in an image", objects},
		{"Loading", loading},
		{"Attaching", attaching},
		{"Starts of pods", starting},
		{"Policies", policies},
		{"Node components", components},
	}
}
