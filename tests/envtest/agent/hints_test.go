// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package agent

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/hints"
	"github.com/bpfman/bpfman-operator/internal/kinds"
	"github.com/bpfman/bpfman-operator/operator/deploy"
)

// publish writes hints like the operator.
func (n *node) publish(data map[string]string) {
	n.t.Helper()
	if err := n.client.Create(n.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: policyNamespace}}); client.IgnoreAlreadyExists(err) != nil {
		n.t.Fatal(err)
	}
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: policyNamespace, Name: hints.ConfigMapName}, Data: data}
	err := n.client.Update(n.t.Context(), configMap)
	if client.IgnoreNotFound(err) != nil {
		n.t.Fatal(err)
	}
	if err != nil {
		n.create(configMap)
	}
}

// relist asks the agent to list its reports, like the operator.
func (n *node) relist(name string) {
	n.t.Helper()
	n.publish(hints.Hints{Relist: map[string]time.Time{name: time.Now()}}.Data())
}

// An agent watches its node, policies, hints, and the kinds that are in use. It doesn't
// watch reports, or pods as long as no object selects containers.
func TestWhatAnAgentWatches(t *testing.T) {
	n := start(t)
	watches := func(want ...string) {
		t.Helper()
		want = append(want, "bytecodepolicies", "configmaps", "nodes")
		slices.Sort(want)
		n.eventually("the agent's watches", func() error {
			n.mu.Lock()
			defer n.mu.Unlock()
			if got := slices.Sorted(maps.Keys(n.watched)); !slices.Equal(got, want) {
				return fmt.Errorf("it watches %q, not %q", got, want)
			}
			return nil
		})
	}
	n.readiness(true, "")
	watches()
	n.create(n.tracepoint("watched", "f", "a/x"))
	n.holds("TracepointProgram/watched f a/x")
	watches("tracepointprograms")
	n.create(n.tracepoint("watched-too", "g", "b/y"))
	n.holds("TracepointProgram/watched f a/x", "TracepointProgram/watched-too g b/y")
	watches("tracepointprograms")
	n.create(n.uprobe("of-pods", &v1alpha1.ContainerSelector{}))
	n.eventually("a third program", func() error {
		if held := n.daemon.Programs(); len(held) != 3 {
			return fmt.Errorf("the daemon holds %+v", held)
		}
		return nil
	})
	watches("tracepointprograms", "uprobeprograms", "pods")
	n.readiness(true, "")
}

// A kind is watched when the operator publishes it. Other content of the hints, and
// their deletion, do no harm.
func TestKindsThatTheOperatorNames(t *testing.T) {
	n := start(t)
	n.crash()
	n.findKinds = time.Hour
	n.startAgent()
	n.readiness(true, "")
	n.publish(map[string]string{"kinds": "NoKind ../secrets\nTcxProgram,", "relist": n.name + " never\n" + n.name})
	fentry := n.fentry("named")
	n.create(fentry)
	key := program.Key{Kind: "FentryProgram", Name: fentry.Name}
	unread := (*kinds.UnreadError)(nil)
	if err := n.kinds.CheckReadable(v1alpha1.SchemeGroupVersion.WithKind(key.Kind)); !errors.As(err, &unread) || !unread.Unused {
		t.Fatalf("reading a kind that isn't used is %v", err)
	}
	n.publish(hints.Hints{Kinds: map[string]bool{"FentryProgram": true}}.Data())
	n.holds("FentryProgram/named f ")
	n.readiness(true, "")

	n.delete(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: policyNamespace, Name: hints.ConfigMapName}})
	n.create(n.fentry("later"))
	n.holds("FentryProgram/named f ", "FentryProgram/later f ")
	n.delete(fentry)
	n.holds("FentryProgram/later f ")

	// If the daemon has a program of a kind, the kind is watched, even if its last
	// object was deleted.
	n.crash()
	later := n.fentry("later")
	n.delete(later)
	n.startAgent()
	n.holds()
	n.readiness(true, "")
}

// With the operator, the first object of a kind is loaded, and reports that others
// change are repaired, although the agent doesn't check either.
func TestTheOperatorTellsTheAgent(t *testing.T) {
	n := start(t)
	n.crash()
	n.findKinds = time.Hour
	n.startAgent()
	n.readiness(true, "")
	n.startOperator()
	n.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: policyNamespace, Name: deploy.ConfigMapName}})
	n.create(n.tracepoint("deleted", "f", "a/x"))
	n.create(n.tracepoint("changed", "g", "b/y"))
	n.create(n.fentry("of-another-kind"))
	want := []string{"TracepointProgram/deleted f a/x", "TracepointProgram/changed g b/y", "FentryProgram/of-another-kind f "}
	n.holds(want...)
	n.delete(n.reportOf("deleted"))
	n.holds(want...)
	n.falsify("changed")
	n.holds(want...)
}
