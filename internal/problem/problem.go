// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package problem names what can be wrong with an object, and says what to do about it. Where an error is made, it names its
// problem ([Errorf]). Reports and the status of objects have the name, and so `kubectl bpfman why` knows what to do. From the
// table come also the tables in docs/status.md, which `make generate` writes, with the messages from the sources.
package problem

// Reason identifies a problem.
type Reason string

// Row says what to do about a problem.
type Row struct {
	Reason Reason
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
