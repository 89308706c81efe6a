// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package definitions keeps operator and agent from objects of other definitions in bpfman.io than this API's, such as
// those of upstream's v0.6, whose BpfApplication has this group, version and name, and is another kind.
package definitions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// upstreamKinds are those of upstream's v0.6 whose names this API doesn't have.
var upstreamKinds = []string{"ClusterBpfApplication", "ClusterBpfApplicationState", "BpfApplicationState", "Config"}

// lookTimeout bounds one question to the API server.
const lookTimeout = 10 * time.Second

// ForeignError says which definitions in bpfman.io aren't this API's.
type ForeignError struct {
	// Kinds are their kinds with what is wrong with them, such as "BpfApplication (namespaced)".
	Kinds []string
}

func (f *ForeignError) Error() string {
	return "the cluster has incompatible definitions in " + v1alpha1.SchemeGroupVersion.Group + ", such as those of upstream's bpfman v0.6: " +
		strings.Join(f.Kinds, ", ") + "; nothing is deployed and no object is written until they are removed: see docs/install.md, Install over upstream's bpfman"
}

// Foreign returns a *ForeignError if some of the resources that an API server has in this API's group and version are
// other kinds than this API's, and nil otherwise. Kinds that aren't served are no fault.
func Foreign(served []metav1.APIResource) error {
	namespaced := map[string]bool{
		v1alpha1.NodeKind.Name:   v1alpha1.NodeKind.Namespaced,
		v1alpha1.PolicyKind.Name: v1alpha1.PolicyKind.Namespaced,
	}
	for _, kind := range v1alpha1.UserKinds {
		namespaced[kind.Name] = kind.Namespaced
	}
	for _, kind := range v1alpha1.ProgramKinds {
		namespaced[kind.Name] = kind.Namespaced
	}
	var foreign []string
	for _, resource := range served {
		if strings.Contains(resource.Name, "/") {
			continue // a subresource is of its resource's kind
		}
		scope := "cluster-scoped"
		if resource.Namespaced {
			scope = "namespaced"
		}
		own, known := namespaced[resource.Kind]
		if (known && own != resource.Namespaced) || slices.Contains(upstreamKinds, resource.Kind) {
			foreign = append(foreign, resource.Kind+" ("+scope+")")
		}
	}
	if foreign == nil {
		return nil
	}
	slices.Sort(foreign)
	return &ForeignError{foreign}
}

// Look asks the API server, which tells everybody, and returns a *ForeignError if it has other definitions.
func Look(ctx context.Context, api discovery.ServerResourcesInterfaceWithContext) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	version := v1alpha1.SchemeGroupVersion.String()
	list, err := api.ServerResourcesForGroupVersionWithContext(ctx, version)
	if apierrors.IsNotFound(err) {
		return nil // there are none at all
	}
	if err != nil {
		return fmt.Errorf("discover the cluster's kinds in %s: %w", version, err)
	}
	return Foreign(list.APIResources)
}

// Guard is a Runnable of a manager. It has everything that reads or writes objects of this API wait while the cluster has
// other definitions, and ends the manager, and so the process, where they appear later.
type Guard struct {
	// Look is the function Look with an API server.
	Look func(context.Context) error
	// Open sets up what waits. It is called once.
	Open func() error
	// Report is told why nothing starts or goes on: a *ForeignError, or that the API server doesn't answer. The same isn't
	// said twice.
	Report func(context.Context, error)
	// Retry is how often to look while nothing starts, Interval how often afterwards.
	Retry, Interval time.Duration

	mu     sync.Mutex
	looked bool
	closed error
}

// Start implements manager.Runnable.
func (g *Guard) Start(ctx context.Context) error {
	said := ""
	for {
		err := g.Look(ctx)
		g.set(err)
		if err == nil {
			break
		}
		if err.Error() != said {
			said = err.Error()
			g.Report(ctx, err)
		}
		if !wait(ctx, g.Retry) {
			return nil
		}
	}
	if err := g.Open(); err != nil {
		return err
	}
	for wait(ctx, g.Interval) {
		if foreign := (*ForeignError)(nil); errors.As(g.Look(ctx), &foreign) {
			g.set(foreign)
			g.Report(ctx, foreign)
			return foreign
		}
	}
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: what waits has an election of its own.
func (*Guard) NeedLeaderElection() bool { return false }

// Held says why nothing has started, nil once it has.
func (g *Guard) Held() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.looked {
		return errNotLooked
	}
	return g.closed
}

var errNotLooked = errors.New("the cluster's definitions haven't been checked yet")

func (g *Guard) set(closed error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.looked, g.closed = true, closed
}

// wait returns false if the context ends first.
func wait(ctx context.Context, period time.Duration) bool {
	timer := time.NewTimer(period)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
