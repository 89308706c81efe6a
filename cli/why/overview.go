// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package why

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/inventory"
	"github.com/bpfman/bpfman-operator/cli/remedy"
	"github.com/bpfman/bpfman-operator/cli/terminal"
)

// Overview is the state of all objects, the most severe first.
type Overview struct {
	metav1.TypeMeta `json:",inline"`

	Objects []Brief `json:"objects"`
	// Volumes are the nodes on which volumes of pods have maps of programs that were deleted, or reloaded with other maps.
	Volumes []string `json:"volumes,omitempty"`
	// Daemons are the daemons of all nodes.
	Daemons inventory.Daemons `json:"daemons,omitempty"`
	// Components are problems of the node components that the operator found.
	Components []string `json:"components,omitempty"`
	// Unseen is what couldn't be read, and why.
	Unseen []string `json:"unseen,omitempty"`
}

// Brief is the state of one object on all nodes.
type Brief struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	State     State  `json:"state"`
	// Message is the operator's summary. It is empty if everything is as specified.
	Message string `json:"message,omitempty"`
	// Conflicts are the conflicts of the object's programs with others, by node.
	Conflicts []string `json:"conflicts,omitempty"`
	// Remedy is the suggested solution.
	Remedy string `json:"remedy,omitempty"`
}

// BriefOf returns the state of an object. conflicts are its conflicts, with their nodes.
func BriefOf(kind string, o v1alpha1.UserObject, conflicts []Conflict) Brief {
	b := Brief{Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName(), State: NotReported}
	status := o.GetStatus()
	if len(status.Conditions) > 0 && status.ObservedGeneration == o.GetGeneration() {
		c := status.Conditions[0]
		b.State, b.Message = stateOf(c, status.Nodes), c.Message
		if b.State == NotReported && status.Rollout != nil {
			b.State = RollingOut
		}
		if b.State == Attached {
			b.Message = ""
		} else {
			b.Remedy = solution(status.Problem, c.Reason, c.Message)
		}
	}
	for _, c := range conflicts {
		b.Conflicts = append(b.Conflicts, fmt.Sprintf("%s on node %s: %s", c.Type, c.Node, c.Message))
		b.Remedy = cmp.Or(b.Remedy, remedy.For("", c.Type))
	}
	return b
}

// stateOf returns the state of an object by its first condition and the counts of its nodes.
func stateOf(first metav1.Condition, nodes *v1alpha1.NodeCounts) State {
	switch v1alpha1.ProgramConditionTypeOf(first.Type) {
	case v1alpha1.ProgramReconcileError, v1alpha1.ProgramDeleteError:
		return Failed
	case v1alpha1.ProgramReconcileSuccess:
		if nodes != nil && nodes.Attached == 0 {
			return Idle
		}
		return Attached
	default:
		return NotReported
	}
}

// BriefOfPolicy returns the state of a policy, by its condition Ready and the problem that its status names.
func BriefOfPolicy(kind, name string, conditions []metav1.Condition, named string) Brief {
	b := Brief{Kind: kind, Name: name, State: NotReported}
	if c := meta.FindStatusCondition(conditions, string(v1alpha1.Ready)); c != nil {
		b.State = Attached
		if c.Status != metav1.ConditionTrue {
			b.State, b.Message, b.Remedy = Failed, c.Message, remedy.For(named, c.Reason)
		}
	}
	return b
}

// attention reports whether something is wrong, or could be.
func (b Brief) attention() bool {
	return b.State != Attached || len(b.Conflicts) > 0
}

// Sort sorts the objects by their states, the most severe first.
func (o *Overview) Sort() {
	order := []State{Failed, NotReported, RollingOut, Idle, Attached}
	slices.SortFunc(o.Objects, func(a, b Brief) int {
		return cmp.Or(
			cmp.Compare(slices.Index(order, a.State), slices.Index(order, b.State)), -cmp.Compare(len(a.Conflicts), len(b.Conflicts)),
			strings.Compare(a.Kind, b.Kind), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name),
		)
	})
}

// Print prints what affects the whole cluster, and then the objects that need attention, and counts the others. If all is set, it lists these too.
func (o *Overview) Print(w io.Writer, all bool) error {
	var out strings.Builder
	causes(&out, o.Components)
	fine := 0
	for _, b := range o.Objects {
		if !b.attention() && !all {
			fine++
			continue
		}
		b.print(&out, terminal.Colors(w))
	}
	switch {
	case len(o.Objects) == 0:
		out.WriteString("There are no objects of bpfman.\n")
	case fine > 0:
		fmt.Fprintf(&out, "As specified: %d of %s. To list them, use -o wide.\n", fine, counted(len(o.Objects), "object"))
	}
	if len(o.Daemons) > 0 {
		fmt.Fprintf(&out, "Daemon: %s.\n", terminal.Line(o.Daemons.String()))
	}
	list(&out, "Volumes", o.Volumes)
	list(&out, "Not readable", o.Unseen)
	_, err := io.WriteString(w, out.String())
	return err
}

func (b Brief) print(out *strings.Builder, colors terminal.Palette) {
	fmt.Fprintf(out, "%s: %s\n", terminal.Line(v1alpha1.BpfNodeOwner{Kind: b.Kind, Namespace: b.Namespace, Name: b.Name}.String()), b.State.shown(colors))
	if b.Message != "" {
		fmt.Fprintf(out, "  %s\n", terminal.Line(firstLine(b.Message)))
	}
	for _, c := range b.Conflicts {
		fmt.Fprintf(out, "  %s %s\n", colors.Doubtful("Conflict"), terminal.Line(c))
	}
	if b.Remedy != "" {
		fmt.Fprintf(out, "  To do: %s\n", terminal.Line(b.Remedy))
	}
	if b.State == Failed && !strings.HasSuffix(b.Kind, "Policy") {
		namespace := ""
		if b.Namespace != "" {
			namespace = " -n " + b.Namespace
		}
		fmt.Fprintf(out, "  For the whole errors, run: kubectl bpfman why%s %s/%s\n", namespace, strings.ToLower(b.Kind), b.Name)
	}
	out.WriteString("\n")
}

// Conflict is a conflict of a program of bpfman with another one on a node.
type Conflict struct {
	Node string
	v1alpha1.BpfNodeConflict
}

// Conflicts returns the conflicts on a node, by the object that they affect.
func Conflicts(node *v1alpha1.BpfNode) map[v1alpha1.BpfNodeOwner][]Conflict {
	found := map[v1alpha1.BpfNodeOwner][]Conflict{}
	for _, c := range node.Status.Conflicts {
		if c.Owner != nil {
			found[*c.Owner] = append(found[*c.Owner], Conflict{node.Name, c})
		}
	}
	return found
}

// StaleMaps describes the maps on a node that only volumes of pods have, if there are any.
func StaleMaps(node *v1alpha1.BpfNode) []string {
	if node.Status.StaleMapCount == 0 {
		return nil
	}
	maps := counted(int(node.Status.StaleMapCount), "map")
	return []string{fmt.Sprintf("on node %s, pods mount %s that no program uses anymore. To do: restart the pods that kubectl bpfman maps --node %[1]s lists", node.Name, maps)}
}

// counted returns a number of things, such as "1 map" or "2 maps".
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
