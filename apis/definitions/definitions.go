// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package definitions protects the operator and the agent from CustomResourceDefinitions in bpfman.io that don't
// belong to this API, such as upstream's Config. It finds out which scope the BpfApplication of the cluster has.
package definitions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/bpfman/bpfman-operator/apis/namespaced"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// upstreamKind is the kind of upstream's v0.6 that this API doesn't have. While it is served, upstream's operator can
// run, and write the same objects.
const upstreamKind = "Config"

// The kinds of upstream's v0.6 that are namespaced there. Upstream's v0.5 has a cluster-scoped application with this
// name, and no States. A cluster has the one or the other.
const (
	application      = "BpfApplication"
	applicationState = "BpfApplicationState"
)

// lookTimeout bounds one request to the API server.
const lookTimeout = 10 * time.Second

// ForeignError lists the definitions in bpfman.io that don't belong to this API.
type ForeignError struct {
	// Kinds are the kinds, each with its scope, such as "Config (cluster-scoped)".
	Kinds []string
}

func (f *ForeignError) Error() string {
	return "the cluster has incompatible definitions in " + v1alpha1.SchemeGroupVersion.Group + ", such as those of upstream's bpfman v0.6: " +
		strings.Join(f.Kinds, ", ") + "; nothing is deployed and no object is written until they are removed: see docs/install.md, Install over upstream's bpfman"
}

// Foreign returns a *ForeignError if resources that an API server serves in this API's group and version belong to
// another API, and nil otherwise. Kinds that aren't served aren't an error.
func Foreign(served []metav1.APIResource) error {
	scopes := map[string]bool{}
	for _, kind := range v1alpha1.AllKinds() {
		scopes[kind.Name] = kind.Namespaced
	}
	for _, kind := range v1alpha1.StateKinds {
		scopes[kind.Name] = kind.Namespaced
	}
	delete(scopes, application) // it can have either
	if Namespaced(served) || !isServed(served) {
		scopes[applicationState] = true // it stays while the definition of its applications is exchanged
	}
	var foreign []string
	for _, resource := range served {
		if strings.Contains(resource.Name, "/") {
			continue // a subresource has its resource's kind
		}
		scope := "cluster-scoped"
		if resource.Namespaced {
			scope = "namespaced"
		}
		own, known := scopes[resource.Kind]
		if (known && own != resource.Namespaced) || (!known && resource.Kind == applicationState) || resource.Kind == upstreamKind {
			foreign = append(foreign, resource.Kind+" ("+scope+")")
		}
	}
	if foreign == nil {
		return nil
	}
	slices.Sort(foreign)
	return &ForeignError{foreign}
}

// Namespaced reports whether BpfApplication is the one of upstream's v0.6, which is namespaced.
func Namespaced(served []metav1.APIResource) bool {
	return slices.ContainsFunc(served, func(r metav1.APIResource) bool { return r.Kind == application && r.Namespaced })
}

// isServed reports whether there is a BpfApplication, of either scope.
func isServed(served []metav1.APIResource) bool {
	return slices.ContainsFunc(served, func(r metav1.APIResource) bool { return r.Kind == application })
}

// Install adds the kinds that are served to a scheme.
func Install(scheme *runtime.Scheme, served []metav1.APIResource) error {
	if Namespaced(served) {
		return namespaced.Install(scheme)
	}
	return v1alpha1.Install(scheme)
}

// ErrOtherScope means that the scope of BpfApplication isn't the one that this process started with. Its types
// can't decode the objects, so the process has to end.
var ErrOtherScope = errors.New("the cluster has got a BpfApplication of the other scope; restarting with it")

// Same returns ErrOtherScope if BpfApplication is served with another scope than a scheme has.
func Same(scheme *runtime.Scheme, served []metav1.APIResource) error {
	if !isServed(served) {
		return nil // it can come back
	}
	for _, kind := range v1alpha1.UserKindsOf(scheme) {
		if kind.Name == application && kind.Namespaced != Namespaced(served) {
			return ErrOtherScope
		}
	}
	return nil
}

// Served returns the resources that an API server serves in this API's group and version, from its discovery API, which
// every client can read.
func Served(ctx context.Context, api rest.Interface) ([]metav1.APIResource, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	version := v1alpha1.SchemeGroupVersion.String()
	body, err := api.Get().AbsPath("/apis", version).SetHeader("Accept", runtime.ContentTypeJSON).DoRaw(ctx)
	if apierrors.IsNotFound(err) {
		return nil, nil // no kind is defined
	}
	var list metav1.APIResourceList
	if err == nil {
		err = json.Unmarshal(body, &list)
	}
	if err != nil {
		return nil, fmt.Errorf("discover the cluster's kinds in %s: %w", version, err)
	}
	return list.APIResources, nil
}

// Guard is a Runnable of a manager. As long as the cluster has other definitions, it delays everything that reads
// or writes objects of this API. If such definitions appear later, it stops the manager, and with it the process.
type Guard struct {
	// Check calls the function Check with an API server.
	Check func(context.Context) error
	// Open starts what waits. It is called once.
	Open func() error
	// Report is called with the reason why nothing starts or continues: a *ForeignError, or an error of the
	// request to the API server. It isn't called twice in a row with the same error.
	Report func(context.Context, error)
	// Retry is the interval between checks until the guard opens. Interval is the interval after that.
	Retry, Interval time.Duration
	// Stop ends the guard with an error.
	Stop <-chan error

	mu     sync.Mutex
	looked bool
	closed error
}

// Start implements manager.Runnable.
func (g *Guard) Start(ctx context.Context) error {
	said := ""
	for {
		err := g.Check(ctx)
		g.set(err)
		if err == nil {
			break
		}
		if errors.Is(err, ErrOtherScope) {
			return err
		}
		if err.Error() != said {
			said = err.Error()
			g.Report(ctx, err)
		}
		if proceed, err := g.wait(ctx, g.Retry); !proceed {
			return err
		}
	}
	if err := g.Open(); err != nil {
		return err
	}
	for {
		if proceed, err := g.wait(ctx, g.Interval); !proceed {
			return err
		}
		err := g.Check(ctx)
		if foreign := (*ForeignError)(nil); errors.As(err, &foreign) {
			g.set(foreign)
			g.Report(ctx, foreign)
			return foreign
		}
		if errors.Is(err, ErrOtherScope) {
			return err
		}
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable. The guard runs on every replica, because what it
// delays has its own leader election.
func (*Guard) NeedLeaderElection() bool { return false }

// Held returns the reason why nothing has started, or nil after the start.
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

// wait returns false if the context or the guard ends before the period.
func (g *Guard) wait(ctx context.Context, period time.Duration) (proceed bool, err error) {
	timer := time.NewTimer(period)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false, nil
	case err := <-g.Stop:
		return false, err
	case <-timer.C:
		return true, nil
	}
}
