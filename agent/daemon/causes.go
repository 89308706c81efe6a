// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package daemon

import (
	"cmp"
	"regexp"

	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/sets"
)

// The daemons' texts name causes that codes don't distinguish. This file recognizes those about which the agent knows more than
// the daemon, so that nothing else compares texts.

var (
	// noVariable matches what the daemons say about a global variable that the bytecode doesn't have.
	noVariable = regexp.MustCompile(`symbol with name (\S+) not found in the symbols table|global variable "([^"]*)" not found in program`)
	// otherType matches what the daemon of v0.6.0 says about a function that is of another type. The daemon in Go names the
	// section.
	otherType = regexp.MustCompile(`UnexpectedProgramType`)
	// noHook matches what the daemon of v0.6.0 says about a tracepoint or a function that the kernel doesn't have. The second
	// has other causes as well. The daemon in Go suggests names.
	noHook = regexp.MustCompile("/tracing/events/[^`\"]*/id|`perf_event_open` failed")
	// firstLine matches the first line of source in each log of the kernel's verifier. It is the one that declares the function,
	// unless the compiler left that out because the function is short.
	firstLine = regexp.MustCompile(`verifier_log: (?:[^;\n][^\n]*\n)*; ([^\n]*)`)
	// identifier matches the names in a line of source.
	identifier = regexp.MustCompile(`\w+`)
)

// message is what the daemon answered. It is "" if it is unknown whether the call took effect.
func (e *Error) message() string {
	if !e.Refused() {
		return ""
	}
	return status.Convert(e.Cause).Message()
}

// UnknownVariable returns the global variable that a refused Load sets and the bytecode doesn't have, or "".
func (e *Error) UnknownVariable() string {
	match := noVariable.FindStringSubmatch(e.message())
	if match == nil {
		return ""
	}
	return cmp.Or(match[1], match[2])
}

// OtherType reports whether a Load was refused because a function is of another type, as its section says.
func (e *Error) OtherType() bool { return otherType.MatchString(e.message()) }

// NoSuchHook reports whether an Attach was possibly refused because the kernel has no such tracepoint or function.
func (e *Error) NoSuchHook() bool { return noHook.MatchString(e.message()) }

// Failing returns the functions of a refused Load that the logs of the kernel's verifier are about. The logs can be large, and
// contain lines that the bytecode's author chose, so the time doesn't grow with the product of functions and lines.
func (e *Error) Failing(loaded sets.Set[string]) []string {
	left := loaded.Clone()
	var failing []string
	for _, match := range firstLine.FindAllStringSubmatch(e.message(), -1) {
		for _, name := range identifier.FindAllString(match[1], -1) {
			if left.Has(name) {
				left.Delete(name)
				failing = append(failing, name)
			}
		}
	}
	return failing
}
