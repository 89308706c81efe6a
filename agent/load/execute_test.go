// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package load

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/agent/gate"
	"github.com/bpfman/bpfman-operator/agent/plan"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/agent/report"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// A program that would have its own maps instead of another program's is unloaded, and isn't loaded again immediately:
// a Load and an Unload leave more in the node's /run than a Load that fails.
func TestMapsThatAreNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newNode(t)
		err := l.Inventory.Load(t.Context(), &gobpfman.LoadRequest{
			Info: []*gobpfman.LoadInfo{{Name: "g"}}, Metadata: map[string]string{v1alpha1.MetadataUUID: "other", v1alpha1.MetadataKind: "XdpProgram"},
		})
		if err != nil {
			t.Fatal(err)
		}
		o := &v1alpha1.XdpProgram{ObjectMeta: metav1.ObjectMeta{Name: "x", UID: "uid", Generation: 1}}
		o.Spec.BpfFunctionName, o.Spec.ByteCode.Path = "f", new("/opt/x.o")
		o.Spec.MapOwnerSelector.MatchLabels = map[string]string{"maps": "shared"}
		owner := program.OwnerOf("XdpProgram", o)
		want := plan.Want(owner, program.Node{}, []plan.MapOwner{{Labels: o.Spec.MapOwnerSelector.MatchLabels, ID: l.daemon.Programs()[0].ID}})
		g, err := (&gate.Policies{Cluster: policies(nil)}).For(t.Context(), &owner, gate.Earlier{})
		if err != nil {
			t.Fatal(err)
		}
		execute := func(message string, calls ...string) {
			t.Helper()
			l.daemon.Calls()
			outcome, err := l.Execute(t.Context(), Pass{Key: owner.Key, Owner: &owner, Plan: want, Gate: g, Judgements: map[int]report.Judgement{}})
			if failed := outcome.Err(); err != nil || (failed == nil) != (message == "") || failed != nil && !strings.Contains(failed.Error(), message) {
				t.Errorf("%v, %v, want %q", err, failed, message)
			}
			if got := l.daemon.Calls(); !slices.Equal(got, calls) {
				t.Errorf("the daemon was called to %q, want %q", got, calls)
			}
		}
		const unshared = "the maps of program 101 are not shared"
		execute(unshared, "Load", "Unload")
		execute(unshared)
		<-time.After(firstReload)
		execute(unshared, "Load", "Unload")
		execute(unshared)
		// As left by an agent that was interrupted between the two calls.
		request, err := want.Loads[0].Request(owner)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Inventory.Load(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		execute(unshared, "Unload")
		l.daemon.PinnedByName = true
		<-time.After(2 * firstReload)
		execute("", "Load")
		execute("")
	})
}
