// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package why

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/terminal"
)

// words are the descriptions of states for users.
var words = map[State]string{
	Failed: "failed", NotReported: "not reported yet", RollingOut: "rolling out", NoAgent: "no agent", Outdated: "not up to date",
	Left: "no longer selected", Idle: "nothing to attach to", Attached: "attached",
}

// shown returns a state for users.
func (s State) shown(colors terminal.Palette) string {
	switch s {
	case Failed:
		return colors.Bad(words[s])
	case Attached:
		return colors.Good(words[s])
	case Idle:
		return colors.Idle(words[s])
	default:
		return colors.Doubtful(words[s])
	}
}

// Print prints a page for users. Nodes with the same text share a paragraph. Its heading names the first of these
// nodes, or all of them if all is set.
func (p *Page) Print(w io.Writer, all bool) error {
	var out strings.Builder
	causes(&out, p.Components)
	p.head(&out)
	colors := terminal.Colors(w)
	for _, group := range group(p.Nodes) {
		out.WriteString("\n" + heading(group.names, all) + ": " + group.state.shown(colors) + "\n" + group.text)
	}
	if len(p.NotSelected) > 0 {
		out.WriteString("\nNot selected:\n")
		for _, c := range p.NotSelected {
			fmt.Fprintf(&out, "  %s: %s\n", heading(terminalNames(c.Examples), false)+more(c.Nodes-len(c.Examples)), terminal.Line(c.Because))
		}
	}
	list(&out, "Not readable", p.Unseen)
	_, err := io.WriteString(w, out.String())
	return err
}

func (p *Page) head(out *strings.Builder) {
	o := p.Object
	name := o.Name
	if o.Namespace != "" {
		name = o.Namespace + "/" + o.Name
	}
	fmt.Fprintf(out, "%s %s\n", o.Kind, name)
	fmt.Fprintf(out, "  %s\n", terminal.Line(p.Summary))
	if p.ToDo != "" {
		fmt.Fprintf(out, "  To do: %s\n", terminal.Line(p.ToDo))
	}
	out.WriteString("\n")
	fmt.Fprintf(out, "  Bytecode:  %s\n", terminal.Line(cmp.Or(o.Bytecode, "none")))
	fmt.Fprintf(out, "  Nodes:     %s\n", terminal.Line(cmp.Or(o.NodeSelector, "all")))
	if len(p.Daemons) > 0 {
		fmt.Fprintf(out, "  Daemon:    %s\n", terminal.Line(p.Daemons.String()))
	}
	status := cmp.Or(o.Status, "none yet: the operator hasn't written a status") + since(o.Since)
	if o.Stale {
		status += ", for an earlier generation of the object"
	}
	if o.Deleting {
		status += "; the object is being deleted"
	}
	fmt.Fprintf(out, "  Status:    %s\n", terminal.Line(status))
	// The errors follow below, in full and by node.
	if !slices.ContainsFunc(p.Nodes, func(n Node) bool { return n.State == Failed }) && o.Message != "" {
		fmt.Fprintf(out, "             %s\n", terminal.Line(firstLine(o.Message)))
	}
	for _, r := range p.Remarks {
		fmt.Fprintf(out, "  Note:      %s\n", terminal.Line(r))
	}
	out.WriteString("\nRequested:\n")
	for _, w := range p.Wanted {
		fmt.Fprintf(out, "  %s\n", terminal.Line(strings.Join(append([]string{strings.TrimSpace(w.Type + " " + w.Function)}, w.Fields...), "  ")))
	}
}

// paragraph is the text for some nodes.
type paragraph struct {
	names []string
	state State
	text  string
}

// group groups nodes that have the same text.
func group(nodes []Node) []paragraph {
	var groups []paragraph
	at := map[string]int{}
	for _, n := range nodes {
		text := n.text()
		key := string(n.State) + "\x00" + text
		i, ok := at[key]
		if !ok {
			i, at[key] = len(groups), len(groups)
			groups = append(groups, paragraph{state: n.State, text: text})
		}
		groups[i].names = append(groups[i].names, terminal.Line(n.Name))
	}
	return groups
}

// text returns the text for a node, without its name, and without values that differ on every node.
func (n *Node) text() string {
	var out strings.Builder
	for _, r := range n.Remarks {
		fmt.Fprintf(&out, "  %s\n", terminal.Line(r))
	}
	for _, p := range n.Programs {
		fmt.Fprintf(&out, "  %s: %s\n", terminal.Line(p.Function), terminal.Line(cmp.Or(p.Condition, "no condition yet")))
		for line := range strings.Lines(strings.TrimRight(p.Message, "\n")) {
			fmt.Fprintf(&out, "      %s\n", terminal.Text(strings.TrimRight(line, "\n")))
		}
		for _, l := range p.Links {
			state := "attached"
			if !l.Attached {
				state = "not attached"
			}
			fmt.Fprintf(&out, "    %s: %s\n", terminal.Line(l.AttachPoint), state)
			if l.Error != "" && !strings.Contains(p.Message, l.Error) {
				fmt.Fprintf(&out, "      %s\n", terminal.Line(l.Error))
			}
		}
	}
	for _, c := range n.Conflicts {
		fmt.Fprintf(&out, "  Conflict %s\n", terminal.Line(c))
	}
	for _, r := range n.Remedies {
		fmt.Fprintf(&out, "  To do: %s\n", terminal.Line(r))
	}
	return out.String()
}

// Reason returns why the object isn't attached on the node, in a line. It returns an empty string if there is nothing to say.
func (n *Node) Reason() string {
	for _, p := range n.Programs {
		if v1alpha1.BpfProgramConditionType(p.Condition).Failed() {
			first, _, _ := strings.Cut(p.Message, "\n")
			return first
		}
	}
	if len(n.Remarks) > 0 {
		return n.Remarks[0]
	}
	return ""
}

func heading(names []string, all bool) string {
	const shown = 5
	left := 0
	if !all && len(names) > shown {
		names, left = names[:shown], len(names)-shown
	}
	text := "Node "
	if len(names)+left > 1 {
		text = "Nodes "
	}
	return text + strings.Join(names, ", ") + more(left)
}

func more(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf(" and %d more", n)
}

func terminalNames(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = terminal.Line(n)
	}
	return out
}

// causes begins a text with what affects the whole cluster, because it can be the cause of everything below.
func causes(out *strings.Builder, components []string) {
	if len(components) == 0 {
		return
	}
	out.WriteString("Node components:\n")
	for _, c := range components {
		fmt.Fprintf(out, "  %s\n", terminal.Line(c))
	}
	out.WriteString("\n")
}

func list(out *strings.Builder, title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	out.WriteString("\n" + title + ":\n")
	for _, l := range lines {
		fmt.Fprintf(out, "  %s\n", terminal.Line(l))
	}
}

func since(t metav1.Time) string {
	if t.IsZero() {
		return ""
	}
	return " for " + duration.HumanDuration(time.Since(t.Time))
}
