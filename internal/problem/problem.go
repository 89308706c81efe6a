// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package problem names what can be wrong with an object, and says what to do about it. Whoever makes an error that an object
// can show makes it with a [Reason]. The reason is stored beside the error's text. From it come what `kubectl bpfman why`
// suggests, and the tables in docs/status.md, which `make generate` writes.
package problem

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Reason identifies a problem. It is stored in the status of objects, so it doesn't change between versions.
type Reason string

// Row says what to do about a problem.
type Row struct {
	Reason Reason
	// Messages are what the messages of the problem have in common, with "…" for any text. Daemon are those of the daemon, its
	// loader, and the kernel, by which [Recognize] finds the problem.
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
		{"Policies", policies},
		{"Node components", components},
	}
}

var toDo = func() map[Reason]string {
	all := map[Reason]string{}
	for _, s := range Table() {
		for _, row := range s.Rows {
			all[row.Reason] = row.ToDo
		}
	}
	return all
}()

// ToDo returns what to do about the problem, or "" if it is unknown, for example because a later version of bpfman stored it.
func (r Reason) ToDo() string { return toDo[r] }

// failure is an error with its reason.
type failure struct {
	error

	reason Reason
}

func (f *failure) Unwrap() error   { return f.error }
func (f *failure) Problem() Reason { return f.reason }

// New returns an error about this problem.
func (r Reason) New(text string) error { return &failure{errors.New(text), r} }

// Errorf returns an error about this problem, as [fmt.Errorf] does.
func (r Reason) Errorf(format string, args ...any) error {
	return &failure{fmt.Errorf(format, args...), r}
}

// Unless returns an error that is about this problem, unless it is about another one already. It returns nil for nil.
func (r Reason) Unless(err error) error {
	if err == nil || Of(err) != "" {
		return err
	}
	return &failure{err, r}
}

// Of returns what an error is about, or "" if nobody said it. An error that wraps another one counts first, and of joined errors
// the first one.
func Of(err error) Reason {
	if of, ok := err.(interface{ Problem() Reason }); ok && of.Problem() != "" {
		return of.Problem()
	}
	switch wraps := err.(type) { //nolint:errorlint // as above
	case interface{ Unwrap() error }:
		return Of(wraps.Unwrap())
	case interface{ Unwrap() []error }:
		for _, each := range wraps.Unwrap() {
			if reason := Of(each); reason != "" {
				return reason
			}
		}
	}
	return ""
}

// Recognize returns what a message of the daemon, its loader, or the kernel is about, or "" if it is unknown. If the texts of
// several problems are in the message, the one that is first in the table counts.
func Recognize(message string) Reason {
	for _, s := range Table() {
		for _, row := range s.Rows {
			if slices.ContainsFunc(row.Daemon, func(pattern string) bool { return has(message, pattern) }) {
				return row.Reason
			}
		}
	}
	return ""
}

// has reports whether a message has the parts of a pattern between ellipses, in this order.
func has(message, pattern string) bool {
	for part := range strings.SplitSeq(pattern, "…") {
		_, rest, found := strings.Cut(message, strings.TrimSpace(part))
		if !found {
			return false
		}
		message = rest
	}
	return true
}
