// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package validate

import (
	"fmt"
	"io"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/cli/terminal"
)

// Report is the output for all objects.
type Report struct {
	metav1.TypeMeta `json:",inline"`

	Objects []*Result `json:"objects"`
	// Unchecked is what couldn't be checked for any object, and why.
	Unchecked []string `json:"unchecked,omitempty"`
}

// Failed reports whether an object has errors or, if strict is set, warnings.
func (p *Report) Failed(strict bool) bool {
	for _, r := range p.Objects {
		if len(r.Errors) > 0 || strict && len(r.Warnings) > 0 {
			return true
		}
	}
	return false
}

// Print prints the report for users.
func (p *Report) Print(w io.Writer) error {
	var out strings.Builder
	colors := terminal.Colors(w)
	for _, r := range p.Objects {
		r.print(&out, colors)
	}
	for _, text := range p.Unchecked {
		fmt.Fprintf(&out, "Not checked: %s\n", terminal.Line(text))
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func (r *Result) print(out *strings.Builder, colors terminal.Palette) {
	name := r.Name
	if r.Namespace != "" {
		name = r.Namespace + "/" + name
	}
	state := colors.Good("valid")
	switch {
	case r.Foreign:
		state = "not one of bpfman's objects"
	case len(r.Errors) > 0:
		state = colors.Bad("invalid")
	case len(r.Warnings) > 0:
		state = colors.Doubtful("valid, with warnings")
	}
	fmt.Fprintf(out, "%s (%s): %s\n", terminal.Line(r.Kind+" "+name), terminal.Line(r.Source), state)
	for _, text := range r.Errors {
		fmt.Fprintf(out, "  %s: %s\n", colors.Bad("error"), terminal.Line(text))
	}
	for _, text := range r.Warnings {
		fmt.Fprintf(out, "  %s: %s\n", colors.Doubtful("warning"), terminal.Line(text))
	}
	for _, text := range r.Unchecked {
		fmt.Fprintf(out, "  not checked: %s\n", terminal.Line(text))
	}
}
