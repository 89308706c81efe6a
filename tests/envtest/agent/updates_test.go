// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package agent

import (
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// The effects of an edit on a running program.
const (
	nothing = "nothing"  // no call of the daemon
	inPlace = "in place" // links change, the program stays
	reload  = "reload"   // a new program is loaded and attached before the old one is unloaded
	unload  = "unload"   // it is unloaded
)

// state is what a user object has on the node: its programs by id, with a description.
type state struct {
	ids     []uint32
	content []string
}

// settledOn waits until all reports about an object have its generation, and returns what the
// daemon has for it.
func (n *node) settledOn(o *unstructured.Unstructured, programs int) state {
	n.t.Helper()
	n.eventually(o.GetKind()+" to be acted on", func() error {
		objects := n.programs()
		count := 0
		for _, p := range objects {
			if ref := metav1.GetControllerOf(p); ref == nil || ref.UID != o.GetUID() {
				continue
			}
			count++
			if p.GetStatus().OwnerGeneration != o.GetGeneration() {
				return fmt.Errorf("%s is about generation %d", p.GetName(), p.GetStatus().OwnerGeneration)
			}
		}
		if count != programs {
			return fmt.Errorf("%d program objects, not %d", count, programs)
		}
		return nil
	})
	var s state
	for _, p := range n.daemon.Programs() {
		if p.Metadata[v1alpha1.MetadataUUID] == string(o.GetUID()) {
			s.ids = append(s.ids, p.ID)
			content := []string{p.Function, p.Metadata[v1alpha1.MetadataLoad]}
			for _, l := range p.Links {
				content = append(content, strings.Join(strings.Fields(l.String()), " ")) // the blanks vary
			}
			slices.Sort(content[2:])
			s.content = append(s.content, strings.Join(content, " "))
		}
	}
	slices.Sort(s.content)
	return s
}

// effect returns the effect that corresponds to a series of calls.
func effect(calls []string, before, after state) (string, error) {
	calls = slices.DeleteFunc(calls, func(c string) bool { return c == "List" })
	load, lastLoad := slices.Index(calls, "Load"), slices.Index(calls, "Unload")
	switch {
	case len(calls) == 0:
		return nothing, nil
	case load < 0 && lastLoad < 0 && slices.Equal(before.ids, after.ids):
		return inPlace, nil
	case load < 0 && len(after.ids) == 0:
		return unload, nil
	case load >= 0 && load < lastLoad && !slices.Contains(calls[lastLoad:], "Load") && !slices.Contains(calls[lastLoad:], "Attach"):
		return reload, nil
	case load >= 0 && len(before.ids) == 0:
		return unload, nil // reverted
	}
	return "", fmt.Errorf("calls %q, programs %v, then %v", calls, before.ids, after.ids)
}

// Each field of each kind is edited on a running program, and edited back. Programs are only
// reloaded if necessary. A reload has no gap, and an Event reports it. At the end, everything is
// as before. Upstream's fault 14: edits of globals, network namespaces, and TCX were never
// applied.
//
//nolint:tparallel // the subtests share a node
func TestUpstreamFault14EditsOfEachField(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.onTwoPods("updates", "updates-two")
	used := map[string]bool{}
	for _, kind := range v1alpha1.UserKinds {
		if testing.Short() && kind.Namespaced {
			continue // for each, there is a cluster-scoped kind with the same fields
		}
		if kind.Name == "LsmProgram" {
			continue // it needs the daemon in Go: TestLSM
		}
		spec := reflect.ValueOf(kind.New()).Elem().FieldByName("Spec").Type()
		fields := slices.DeleteFunc(fieldsOf(spec, ""), func(field string) bool { return strings.HasPrefix(field, "programs.lsm.") })
		t.Run(kind.Name, func(t *testing.T) {
			begin := specOf(t, kind.Name, fields)
			o := &unstructured.Unstructured{Object: map[string]any{"spec": begin}}
			o.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(kind.Name))
			o.SetName("updates")
			if kind.Namespaced {
				o.SetNamespace("updates")
			}
			n.create(o)
			members, application := 1, strings.HasSuffix(kind.Name, "Application")
			if application {
				members = len(programsOf(begin))
			}
			before := n.settledOn(o, members)
			if len(before.ids) != members || slices.ContainsFunc(before.content, func(c string) bool { return len(strings.Fields(c)) < 3 }) {
				t.Fatalf("the daemon has %q", before.content)
			}
			for _, field := range fields {
				member, rest := memberOf(field)
				if member == "" {
					member = strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(kind.Name), "program"), "ns")
				}
				if _, ok := updates[rest]; !ok {
					t.Errorf("what does an edit of %s make?", field)
					continue
				}
				used[rest] = true
				want, then := effectOn(member, rest, application), members
				if want == unload {
					then = 0
				}
				if field == "programs.type" {
					then--
				}
				n.daemon.Calls()
				err := n.set(o, edited(t, begin, field))
				if err != nil {
					t.Fatalf("%s: %v", field, err)
				}
				after := n.settledOn(o, then)
				got, err := effect(n.daemon.Calls(), before, after)
				if err != nil || got != want {
					t.Errorf("%s: %q, want %q: %v", field, got, want, err)
				}
				if want == reload {
					old := slices.DeleteFunc(slices.Clone(before.ids), func(id uint32) bool { return slices.Contains(after.ids, id) })
					// A member with another function is another program. The other members
					// identify it.
					changed := slices.Index(order(begin), member)
					if field == "programs.type" || field == "programs.name" {
						changed = 0
					}
					neighbour := old[(changed+1)%len(old)]
					n.event(o.GetName(), "Reloaded", fmt.Sprintf(" replaced program %d", neighbour))
				}
				if err := n.set(o, begin); err != nil {
					t.Fatalf("%s, back: %v", field, err)
				}
				back := n.settledOn(o, members)
				if got, err := effect(n.daemon.Calls(), after, back); err != nil || got != want {
					t.Errorf("%s, back: %q, want %q: %v", field, got, want, err)
				}
				if !slices.Equal(before.content, back.content) {
					t.Errorf("%s, back: %q, before %q", field, back.content, before.content)
				}
				before = back
			}
			n.delete(o)
			n.holds()
		})
	}
	for field := range updates {
		if !used[field] {
			t.Errorf("no kind has the field %s", field)
		}
	}
}

// order returns an application's members in order.
func order(spec map[string]any) []string {
	var members []string
	for _, p := range programsOf(spec) {
		if kind, is := p["type"].(string); is {
			members = append(members, strings.ToLower(kind))
		}
	}
	return members
}

// set writes the spec of an object.
func (n *node) set(o *unstructured.Unstructured, spec map[string]any) error {
	before := o.DeepCopy()
	o.Object["spec"] = spec
	if err := n.client.Update(context.Background(), o); err != nil {
		o.Object = before.Object
		return fmt.Errorf("edit %s: %w", o.GetKind(), err)
	}
	return nil
}

// onTwoPods adds addresses and interfaces to the node, and pods in two namespaces: web with
// containers a and b in both, and db with the same containers in the first.
func (n *node) onTwoPods(one, two string) {
	n.t.Helper()
	n.mu.Lock()
	n.interfaces = map[string]program.Interface{
		"eth0": {Index: 2, Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.7")}}, "eth1": {Index: 3}, "eth2": {Index: 4},
	}
	n.mu.Unlock()
	n.address("10.0.0.7")
	for _, namespace := range []string{one, two} {
		n.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	}
	n.pod(one, "web", map[string]string{"app": "web"}, "a", "b")
	n.pod(one, "db", map[string]string{"app": "db"}, "a", "b")
	n.pod(two, "web", map[string]string{"app": "web"}, "a", "b")
}
