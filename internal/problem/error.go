// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package problem

import "fmt"

// Error is an error that names its problem. Other types of errors name one with a method Problem.
type Error struct {
	Reason Reason
	Err    error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Problem returns the reason.
func (e *Error) Problem() Reason { return e.Reason }

// Errorf is fmt.Errorf for an error that names its problem.
func Errorf(reason Reason, format string, args ...any) error {
	return &Error{reason, fmt.Errorf(format, args...)}
}

// Of returns the problem of an error: that of the first error in its tree that names one. It returns "" if none does.
func Of(err error) Reason {
	// It visits the errors one by one: the first of a type can be one that names no problem.
	if named, does := err.(interface{ Problem() Reason }); does && named.Problem() != "" {
		return named.Problem()
	}
	switch wrapper := err.(type) { //nolint:errorlint // see above
	case interface{ Unwrap() error }:
		return Of(wrapper.Unwrap())
	case interface{ Unwrap() []error }:
		for _, wrapped := range wrapper.Unwrap() {
			if reason := Of(wrapped); reason != "" {
				return reason
			}
		}
	}
	return ""
}

// Note is what users should know about something that works.
type Note struct {
	Reason Reason
	Text   string
}

// Notef returns a note with a text in the format of fmt.Sprintf.
func Notef(reason Reason, format string, args ...any) Note {
	return Note{reason, fmt.Sprintf(format, args...)}
}

// UnmarshalText implements [encoding.TextUnmarshaler]. An unknown reason is "", because it comes from another process, whose
// answers are checked, or from another version of bpfman.
func (r *Reason) UnmarshalText(text []byte) error {
	if *r = Reason(text); ToDo(*r) == "" {
		*r = ""
	}
	return nil
}

// ToDo returns what to do about a problem. It is "" for an unknown one: a newer version of bpfman may have named it.
func ToDo(reason Reason) string {
	for _, section := range Table() {
		for _, row := range section.Rows {
			if row.Reason == reason {
				return row.ToDo
			}
		}
	}
	return ""
}
