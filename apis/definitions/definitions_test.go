// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package definitions

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

func ours() []metav1.APIResource {
	var served []metav1.APIResource
	for _, kind := range v1alpha1.AllKinds() {
		served = append(served,
			metav1.APIResource{Name: kind.Resource(), Kind: kind.Name, Namespaced: kind.Namespaced},
			metav1.APIResource{Name: kind.Resource() + "/status", Kind: kind.Name, Namespaced: kind.Namespaced})
	}
	return served
}

// upstreams returns the definitions of upstream's v0.6.
func upstreams() []metav1.APIResource {
	return []metav1.APIResource{
		{Name: "bpfapplications", Kind: "BpfApplication", Namespaced: true},
		{Name: "bpfapplications/status", Kind: "BpfApplication", Namespaced: true},
		{Name: "bpfapplicationstates", Kind: "BpfApplicationState", Namespaced: true},
		{Name: "clusterbpfapplications", Kind: "ClusterBpfApplication"},
		{Name: "clusterbpfapplicationstates", Kind: "ClusterBpfApplicationState"},
		{Name: "configs", Kind: "Config"},
	}
}

func TestForeign(t *testing.T) {
	withoutApplications := slices.DeleteFunc(ours(), func(r metav1.APIResource) bool { return r.Kind == "BpfApplication" })
	for name, c := range map[string]struct {
		served []metav1.APIResource
		kinds  string
	}{
		"none":               {nil, ""},
		"ours":               {ours(), ""},
		"some of ours":       {ours()[:3], ""},
		"ours and a new one": {append(ours(), metav1.APIResource{Name: "bpfsomethings", Kind: "BpfSomething"}), ""},
		"upstream's v0.6": {
			upstreams(),
			"Config (cluster-scoped)",
		},
		"upstream's v0.6, and ours where they don't clash": {
			append(withoutApplications, upstreams()...),
			"Config (cluster-scoped)",
		},
		"ours, and one that is optional": {append(ours(), metav1.APIResource{Name: "clusterbpfapplicationstates", Kind: "ClusterBpfApplicationState"}), ""},
		"another scope of an optional one": {
			[]metav1.APIResource{{Name: "clusterbpfapplicationstates", Kind: "ClusterBpfApplicationState", Namespaced: true}}, "ClusterBpfApplicationState (namespaced)",
		},
		"ours, with the applications of upstream's v0.6":   {append(withoutApplications, upstreams()[:5]...), ""},
		"ours, while the applications are exchanged":       {append(withoutApplications, upstreams()[2]), ""},
		"ours, with States of applications that have none": {append(ours(), upstreams()[2]), "BpfApplicationState (namespaced)"},
		"another scope": {[]metav1.APIResource{{Name: "xdpprograms", Kind: "XdpProgram", Namespaced: true}}, "XdpProgram (namespaced)"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Foreign(c.served)
			foreign := (*ForeignError)(nil)
			if errors.As(err, &foreign) != (c.kinds != "") || (foreign != nil && strings.Join(foreign.Kinds, ", ") != c.kinds) {
				t.Errorf("got %v, want %q", err, c.kinds)
			}
		})
	}
}

// guarded runs a Guard on a simulated cluster.
type guarded struct {
	Guard
	mu       sync.Mutex
	answer   error
	opened   int
	reported []string
}

func newGuarded(answer error) *guarded {
	g := &guarded{answer: answer}
	g.Guard = Guard{
		Check:  func(context.Context) error { return g.says() },
		Open:   func() error { g.opened++; return nil },
		Report: func(_ context.Context, err error) { g.reported = append(g.reported, err.Error()) },
		Retry:  time.Second, Interval: time.Minute,
	}
	return g
}

func (g *guarded) says() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.answer
}

// say changes what the cluster has.
func (g *guarded) say(answer error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.answer = answer
}

func TestGuardOpensWhenForeignDefinitionsAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(Foreign(upstreams()))
		if g.Held() == nil {
			t.Error("ready before it looked")
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- g.Start(ctx) }()
		time.Sleep(time.Minute) //nolint:forbidigo // in the bubble, the clock isn't real
		synctest.Wait()
		if g.opened != 0 || len(g.reported) != 1 || !strings.Contains(g.reported[0], "Config (cluster-scoped)") || g.Held() == nil {
			t.Errorf("opened %d times, said %q, held: %v", g.opened, g.reported, g.Held())
		}
		g.say(nil)
		time.Sleep(time.Hour) //nolint:forbidigo // in the bubble, the clock isn't real
		synctest.Wait()
		if g.opened != 1 || len(g.reported) != 1 || g.Held() != nil {
			t.Errorf("opened %d times, said %q, held: %v", g.opened, g.reported, g.Held())
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("told to end it returned %v", err)
		}
	})
}

// The process ends when BpfApplication gets the other scope, before the start and after it, or as soon as an object shows it.
func TestGuardEndsWhenTheScopeChanges(t *testing.T) {
	for name, change := range map[string]func(*guarded, chan<- error){
		"before the start": func(g *guarded, _ chan<- error) { g.say(ErrOtherScope) },
		"after the start": func(g *guarded, _ chan<- error) {
			g.say(nil)
			time.Sleep(time.Hour) //nolint:forbidigo // in the bubble, the clock isn't real
			g.say(ErrOtherScope)
		},
		"an object": func(_ *guarded, stop chan<- error) { stop <- ErrOtherScope },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, stop := newGuarded(errors.New("no answer")), make(chan error, 1)
				g.Stop = stop
				ended := make(chan error, 1)
				go func() { ended <- g.Start(t.Context()) }()
				synctest.Wait()
				change(g, stop)
				if err := <-ended; !errors.Is(err, ErrOtherScope) {
					t.Errorf("ended with %v", err)
				}
			})
		})
	}
}

// A scheme has the BpfApplication that is served, and says when the other one is.
func TestScopes(t *testing.T) {
	for _, namespaced := range []bool{false, true} {
		scheme, served := runtime.NewScheme(), []metav1.APIResource{{Name: "bpfapplications", Kind: "BpfApplication", Namespaced: namespaced}}
		if err := Install(scheme, served); err != nil {
			t.Fatal(err)
		}
		all := v1alpha1.UserKindsOf(scheme)
		for i, kind := range all {
			want := v1alpha1.UserKinds[i]
			if kind.Name == "BpfApplication" {
				want.Namespaced = namespaced
			}
			_, list := kind.NewList().(interface{ GetContinue() string })
			if kind.Name != want.Name || kind.Namespaced != want.Namespaced || !list || reflect.TypeOf(kind.New()) != reflect.TypeOf(v1alpha1.UserKindsOf(scheme)[i].New()) {
				t.Errorf("%s is namespaced: %v, %T", kind.Name, kind.Namespaced, kind.NewList())
			}
			if gvks, _, err := scheme.ObjectKinds(kind.New()); err != nil || len(gvks) != 1 || gvks[0] != kind.GroupVersionKind() {
				t.Errorf("%s: %v, %v", kind.Name, gvks, err)
			}
		}
		if states := v1alpha1.StateKindsOf(scheme); (len(states) == 2) != namespaced || states[len(states)-1].Namespaced != namespaced || states[len(states)-1].New().GetStatus() == nil {
			t.Errorf("namespaced %v: States %+v", namespaced, states)
		}
		others := []metav1.APIResource{{Name: "bpfapplications", Kind: "BpfApplication", Namespaced: !namespaced}}
		for _, c := range []struct {
			served []metav1.APIResource
			want   error
		}{{nil, nil}, {served, nil}, {others, ErrOtherScope}} {
			if err := Same(scheme, c.served); !errors.Is(err, c.want) {
				t.Errorf("namespaced %v: %v of %v", namespaced, err, c.served)
			}
		}
	}
}

func TestGuardEndsWhenForeignDefinitionsAppear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(nil)
		ended := make(chan error, 1)
		go func() { ended <- g.Start(t.Context()) }()
		time.Sleep(time.Second) //nolint:forbidigo // in the bubble, the clock isn't real
		synctest.Wait()
		g.say(errors.New("no answer")) // this must not stop the manager
		time.Sleep(time.Hour)          //nolint:forbidigo // in the bubble, the clock isn't real
		synctest.Wait()
		if g.opened != 1 || len(ended) != 0 {
			t.Fatalf("opened %d times, ended %d times", g.opened, len(ended))
		}
		g.say(Foreign(upstreams()))
		if err := <-ended; !errors.Is(err, g.says()) || g.Held() == nil || len(g.reported) != 1 {
			t.Errorf("ended with %v, said %q, held: %v", err, g.reported, g.Held())
		}
	})
}
