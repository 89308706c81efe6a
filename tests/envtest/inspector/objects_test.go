// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package inspector tests the inspector's requests to the API server, with only the permissions in config/rbac.
package inspector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/inspector/objects"
	"github.com/bpfman/bpfman-operator/tests/envtest"
	"github.com/bpfman/bpfman-operator/tests/must"
)

func TestMain(m *testing.M) { envtest.Main(m) }

// long is the longest valid name of a node and an object.
var long = strings.Repeat("a", 63) + strings.Repeat("."+strings.Repeat("b", 62), 3)

func TestObjects(t *testing.T) {
	config := envtest.Config(t)
	admin := envtest.Client(t, config)
	// The test also acts as the agent, which others are forbidden to do.
	must.Succeed(t, envtest.Apply(t.Context(), admin, "config/default", "Deployment", "ValidatingAdmissionPolicyBinding"))
	cluster, err := objects.New(envtest.As(config, "bpfman", "bpfman-daemon"), long)
	if err != nil {
		t.Fatal(err)
	}
	create := func(object client.Object, status func()) {
		t.Helper()
		must.Succeed(t, admin.Create(t.Context(), object))
		status()
		must.Succeed(t, admin.Status().Update(t.Context(), object))
	}
	links := []v1alpha1.BpfProgramLink{{AttachPoint: "eth0", State: v1alpha1.LinkNotAttached}}
	reported := func(name, node, kind, owner string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Name: name, Labels: map[string]string{v1alpha1.LabelHostname: v1alpha1.LabelValue(node)},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: kind, Name: owner, UID: "uid-of-it", Controller: new(true)}},
		}
	}
	here := &v1alpha1.BpfProgram{ObjectMeta: reported("here", long, "XdpProgram", "drop"), Spec: v1alpha1.BpfProgramSpec{Type: "xdp"}}
	create(here, func() { here.Status.Links = links })
	elsewhere := &v1alpha1.BpfProgram{ObjectMeta: reported("elsewhere", "another", "XdpProgram", "drop"), Spec: v1alpha1.BpfProgramSpec{Type: "xdp"}}
	create(elsewhere, func() { elsewhere.Status.Links = links })
	namespaced := &v1alpha1.BpfNsProgram{ObjectMeta: reported("here", long, "XdpNsProgram", long), Spec: v1alpha1.BpfProgramSpec{Type: "xdp"}}
	namespaced.Namespace = metav1.NamespaceDefault
	create(namespaced, func() { namespaced.Status.Links = links })

	t.Run("reports of this node", func(t *testing.T) {
		// They come from the API server's cache, which can be behind the storage.
		envtest.Eventually(t, "both", func(ctx context.Context) error {
			reports, err := cluster.Reports(ctx)
			var owners []string
			for _, r := range reports {
				for _, l := range r.Links {
					owners = append(owners, r.Owner.String()+" "+string(r.UID)+" "+r.Type+" "+l.AttachPoint)
				}
			}
			slices.Sort(owners)
			if !slices.Equal(owners, []string{"XdpNsProgram default/" + long + " uid-of-it xdp eth0", "XdpProgram drop uid-of-it xdp eth0"}) {
				return errors.Join(fmt.Errorf("the owners are %q", owners), err)
			}
			return err
		})
	})

	t.Run("what was told", func(t *testing.T) {
		if told, err := cluster.Announced(t.Context()); err != nil || told != nil {
			t.Errorf("without a BpfNode: %v, %v", told, err)
		}
		node := &v1alpha1.BpfNode{ObjectMeta: metav1.ObjectMeta{Name: long}}
		create(node, func() {
			node.Status.Conflicts = []v1alpha1.BpfNodeConflict{{Type: v1alpha1.BpfNodeForeignXDP, Message: "m", ProgramID: 7}}
		})
		if told, err := cluster.Announced(t.Context()); err != nil || len(told) != 1 || told[0].ProgramID != 7 {
			t.Errorf("got %+v, %v", told, err)
		}
	})

	t.Run("Events", func(t *testing.T) {
		found := v1alpha1.BpfNodeConflict{Type: v1alpha1.BpfNodeForeignXDP, Message: strings.Repeat("words ", 1000)}
		for _, owner := range []v1alpha1.BpfNodeOwner{{Kind: "XdpProgram", Name: "drop"}, {Kind: "XdpNsProgram", Namespace: metav1.NamespaceDefault, Name: long}} {
			for range 2 { // the second Event has another name
				if err := cluster.Warn(t.Context(), owner, "uid-of-it", found); err != nil {
					t.Error(err)
				}
			}
		}
		var events eventsv1.EventList
		must.Succeed(t, admin.List(t.Context(), &events, client.InNamespace(metav1.NamespaceDefault)))
		about := map[string]int{}
		for _, e := range events.Items {
			if e.Reason == v1alpha1.BpfNodeForeignXDP && e.Type == "Warning" && e.ReportingController == "bpfman-inspector" && strings.HasPrefix(e.Note, "On node "+long+": words") {
				about[e.Regarding.Kind+" "+e.Regarding.Namespace+"/"+e.Regarding.Name+" "+string(e.Regarding.UID)]++
			}
		}
		if about["XdpProgram /drop uid-of-it"] != 2 || about["XdpNsProgram default/"+long+" uid-of-it"] != 2 {
			t.Errorf("Events %v", about)
		}
	})
}
