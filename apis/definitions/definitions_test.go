// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package definitions

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
			"BpfApplication (namespaced), BpfApplicationState (namespaced), Config (cluster-scoped)",
		},
		"upstream's v0.6, and ours where they don't clash": {
			append(withoutApplications, upstreams()...),
			"BpfApplication (namespaced), BpfApplicationState (namespaced), Config (cluster-scoped)",
		},
		"ours, and one that is optional": {append(ours(), metav1.APIResource{Name: "clusterbpfapplicationstates", Kind: "ClusterBpfApplicationState"}), ""},
		"another scope of an optional one": {
			[]metav1.APIResource{{Name: "clusterbpfapplicationstates", Kind: "ClusterBpfApplicationState", Namespaced: true}}, "ClusterBpfApplicationState (namespaced)",
		},
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
		if g.opened != 0 || len(g.reported) != 1 || !strings.Contains(g.reported[0], "BpfApplicationState (namespaced)") || g.Held() == nil {
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
