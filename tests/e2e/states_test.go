// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// TestStates installs the definition of ClusterBpfApplicationState. The operator writes a State of each application on each
// node, with the ids that the daemon has. It deletes what upstream's agent left, and the States of nodes that aren't
// selected anymore.
func TestStates(t *testing.T) {
	app, ok := linkedKind().object.(*v1alpha1.ClusterBpfApplication)
	if !ok {
		t.Fatal("linkedKind has another kind")
	}
	app.Name = "e2e-stated"
	app.Spec.Programs = slices.DeleteFunc(app.Spec.Programs, func(p v1alpha1.ClusterBpfApplicationProgram) bool { return p.UProbe != nil || p.URetProbe != nil })
	if len(app.Spec.Programs) == 0 {
		t.Skip("no node supports any of the types of programs")
	}
	feature(t,
		step{"a State on each node", func(ctx context.Context, s *testing.T) {
			installStates(ctx, t)
			create(ctx, t, app)
			awaitSuccess(ctx, s, app)
			checkStates(ctx, s, app)
		}},
		step{"what upstream's agent left goes", func(ctx context.Context, s *testing.T) {
			left := &v1alpha1.ClusterBpfApplicationState{ObjectMeta: metav1.ObjectMeta{
				Name: app.Name + "-0a1b2c3d", Finalizers: []string{"bpfman.io.clbpfapplicationcontroller/finalizer"},
				Labels: map[string]string{v1alpha1.LabelOwnedByProgram: app.Name, v1alpha1.LabelHostname: v1alpha1.LabelValue(under.nodes()[0])},
			}}
			create(ctx, s, left)
			awaitGone(ctx, s, left)
			checkStates(ctx, s, app)
		}},
		step{"no State without a selected node", func(ctx context.Context, s *testing.T) {
			modify(ctx, s, app, func(a *v1alpha1.ClusterBpfApplication) {
				a.Spec.NodeSelector = metav1.LabelSelector{MatchLabels: map[string]string{"e2e": "none"}}
			})
			await(ctx, s, "the States go", func(ctx context.Context) (bool, string) {
				states, err := statesOf(ctx, app)
				return err == nil && len(states) == 0, fmt.Sprintf("%d, %v", len(states), err)
			})
		}},
	)
}

// installStates installs the definition until the test ends, unless the cluster has it.
func installStates(ctx context.Context, t *testing.T) {
	t.Helper()
	object := &unstructured.Unstructured{}
	must.Succeed(t, yaml.Unmarshal(must.Read(t, "../../config/states/bpfman.io_clusterbpfapplicationstates.yaml"), &object.Object))
	object.SetLabels(map[string]string{"bpfman.io/owned-definition": "true"})
	if err := under.Create(ctx, object); apierrors.IsAlreadyExists(err) {
		return
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		must.Succeed(t, remove(ctx, object))
	})
}

func statesOf(ctx context.Context, app *v1alpha1.ClusterBpfApplication) ([]v1alpha1.ClusterBpfApplicationState, error) {
	var list v1alpha1.ClusterBpfApplicationStateList
	err := under.List(ctx, &list, client.MatchingLabels{v1alpha1.LabelOwnedByProgram: app.Name})
	return list.Items, err
}

// checkStates waits until each node has a State of the application, in which everything is attached, and the ids are the
// daemon's.
func checkStates(ctx context.Context, t *testing.T, app *v1alpha1.ClusterBpfApplication) {
	t.Helper()
	await(ctx, t, "States with the daemon's ids", func(ctx context.Context) (bool, string) {
		loaded, err := loadedFor(ctx, app.UID)
		states, listErr := statesOf(ctx, app)
		if err != nil || listErr != nil || len(states) != len(under.nodes()) {
			return false, fmt.Sprintf("%d States, %v, %v", len(states), err, listErr)
		}
		var links []uint32
		for _, p := range loaded {
			links = append(links, p.Links...)
		}
		var programsStated, linksStated []uint32
		for _, s := range states {
			if c := s.Status.Conditions; len(c) != 1 || c[0].Type != "Success" || s.Status.AppLoadStatus != v1alpha1.ApplicationLoadSuccess || len(s.Status.Programs) != len(app.Spec.Programs) {
				return false, fmt.Sprintf("%+v", s.Status)
			}
			for i, p := range s.Status.Programs {
				if p.Name != app.Spec.Programs[i].Name || p.ProgramLinkStatus != v1alpha1.ProgramLinkSuccess || p.ProgramID == nil {
					return false, fmt.Sprintf("%+v", p)
				}
				programsStated = append(programsStated, *p.ProgramID)
				linksStated = append(linksStated, linkIDs(t, p)...)
			}
		}
		same := slices.Equal(sorted(programsStated), ids(loaded)) && slices.Equal(sorted(linksStated), sorted(links))
		return same, fmt.Sprintf("programs %v, links %v; the daemon has %v", programsStated, linksStated, loaded)
	})
}

// linkIDs returns the ids of the links of a program of any type.
func linkIDs(t *testing.T, p v1alpha1.ApplicationProgramState) []uint32 {
	t.Helper()
	text, err := json.Marshal(p)
	must.Succeed(t, err)
	var all map[string]any
	must.Succeed(t, json.Unmarshal(text, &all))
	var found []uint32
	for _, field := range all {
		of, isField := field.(map[string]any)
		if !isField {
			continue
		}
		text, err := json.Marshal(of["links"])
		must.Succeed(t, err)
		var links []v1alpha1.ApplicationLinkState
		must.Succeed(t, json.Unmarshal(text, &links))
		for _, l := range links {
			if l.LinkID != nil {
				found = append(found, *l.LinkID)
			}
		}
	}
	return found
}
