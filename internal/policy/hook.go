// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package policy

import (
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Hook is a place where a program can be attached.
type Hook struct {
	Type HookType
	// Name is the name of the interface, tracepoint (category/event), kernel function,
	// or target.
	Name string
	// Offset means that the hook is at an offset from the kernel function.
	Offset bool
}

// HookType decides which patterns a hook's name is compared with.
type HookType string

// The types of hooks that limits can restrict.
const (
	Interface  HookType = "interface"
	Tracepoint HookType = "tracepoint"
	Function   HookType = "function"
	Target     HookType = "target"
)

// Limits of the kernel, in bytes, without the zero at the end: IFNAMSIZ, KSYM_NAME_LEN, and
// PATH_MAX.
const (
	maxInterface = 15
	maxFunction  = 511
	maxPath      = 4095
)

// Problem returns why nothing can be attached to a hook with this name, or "". The daemon of
// v0.6.0 and the kernel take a name without a problem as it is, so it is what policies compare.
// Others can lead to another hook, or make the daemon panic.
func (h Hook) Problem() string {
	switch h.Type {
	case Interface:
		if !isInterface(h.Name) {
			return "the name of an interface has 1 to 15 bytes of UTF-8, without whitespace, slashes, and colons"
		}
	case Tracepoint:
		category, event, _ := strings.Cut(h.Name, "/")
		if !isComponent(category) || !isComponent(event) {
			return "a tracepoint has the form category/event"
		}
	case Function:
		if h.Name == "" || len(h.Name) > maxFunction || strings.ContainsFunc(h.Name, isBlank) {
			return "the name of a kernel function has 1 to 511 bytes, without whitespace and control characters"
		}
	case Target:
		if h.Name == "" || len(h.Name) > maxPath || strings.ContainsFunc(h.Name, unicode.IsControl) ||
			!path.IsAbs(h.Name) && strings.Contains(h.Name, "/") {
			return "a target is the name of a library, or an absolute path, with 1 to 4095 bytes and without control characters"
		}
	}
	return ""
}

// isInterface reports whether the kernel accepts the name for an interface (dev_valid_name), and the
// daemon's API, which has texts in UTF-8 only. In requests, the kernel cuts names at a colon, which
// separates the labels of addresses (dev_ioctl). The byte 0xa0 is whitespace for the kernel.
func isInterface(name string) bool {
	return name != "" && len(name) <= maxInterface && utf8.ValidString(name) && name != "." && name != ".." &&
		!strings.ContainsAny(name, "\x00/: \t\n\v\f\r") && strings.IndexByte(name, 0xa0) < 0
}

// isComponent reports whether text is one component of a path in tracefs.
func isComponent(text string) bool {
	return text != "" && text != "." && text != ".." && !strings.Contains(text, "/") && !strings.ContainsFunc(text, isBlank)
}

func isBlank(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }

// wanders reports whether a path has empty parts, "." or "..".
func wanders(path string) bool {
	return strings.Contains(path, "/") && slices.ContainsFunc(strings.Split(strings.TrimPrefix(path, "/"), "/"), func(part string) bool {
		return part == "" || part == "." || part == ".."
	})
}
