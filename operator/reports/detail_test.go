// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package reports

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/bpfman/bpfman-operator/apis/namespaced"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/kinds"
	"github.com/bpfman/bpfman-operator/internal/liststream"
)

func ofApplication(p *v1alpha1.BpfProgram) {
	p.OwnerReferences[1].Kind = "ClusterBpfApplication"
	p.Status.Function, p.Status.ProgramType, p.Status.Previous = "pass", "tcx", true
	p.Status.Links[0].Digest, p.Status.Links[0].LinkID = "0123456789abcdef", 4294967295
	p.Status.Links[0].Hook = &v1alpha1.BpfProgramHook{Interface: "eth0", Priority: new(int32(0))}
}

// Details are only kept if they are wanted, and only of applications that have States.
func TestDetail(t *testing.T) {
	want := Detail{Function: "pass", ProgramType: "tcx", Links: []v1alpha1.BpfProgramLink{{
		AttachPoint: "eth0 ingress", State: v1alpha1.LinkAttached, LinkID: 4294967295, Hook: &v1alpha1.BpfProgramHook{Interface: "eth0", Priority: new(int32(0))},
	}}}
	s := NewStore(&kinds.Kinds{}, v1alpha1.StateKinds)
	check := func(kept bool, change func(*v1alpha1.BpfProgram)) {
		t.Helper()
		r, _, err := s.decode(encoded(t, full("p", "u-p", change)))
		if err != nil {
			t.Fatal(err)
		}
		got, is := r.State.Value().Detail()
		if is != kept || kept && !cmp.Equal(got, want) {
			t.Errorf("kept: %v, %s", is, cmp.Diff(want, got))
		}
	}
	check(false, ofApplication)
	s.KeepDetails()
	s.KeepDetails()
	check(true, ofApplication)
	check(false, nil)
}

// What can't be decoded is kept as an empty detail, and of too many links, those that failed are kept.
func TestDetailsInTheExtreme(t *testing.T) {
	s := NewStore(&kinds.Kinds{}, v1alpha1.StateKinds)
	s.KeepDetails()
	object := strings.Replace(string(encoded(t, full("p", "u-p", ofApplication))), `"linkid":4294967295`, `"linkid":"text"`, 1)
	r, _, err := s.decode([]byte(object))
	if err != nil {
		t.Fatal(err)
	}
	if d, kept := r.State.Value().Detail(); !kept || d.Function != "" || len(d.Links) > 0 || r.State.Value().Undecodable != "" {
		t.Errorf("%v, %+v", kept, d)
	}
	many := make([]v1alpha1.BpfProgramLink, MaxLinks+7)
	many[MaxLinks+6].Error = "no such device"
	if d, kept := (State{}).WithDetail(Detail{Links: many}, MaxLinks).Detail(); !kept || len(d.Links) != MaxLinks || d.Left != 7 || d.Links[0].Error == "" {
		t.Errorf("%v: %d links, %d left out, %+v", kept, len(d.Links), d.Left, d.Links[0])
	}
}

// A tenant decides how many links a report has, so fewer of them are kept.
func TestDetailsOfTenants(t *testing.T) {
	scheme := runtime.NewScheme()
	must(t, namespaced.Install(scheme))
	s := NewStore(&kinds.Kinds{}, v1alpha1.StateKindsOf(scheme))
	s.KeepDetails()
	for namespace, most := range map[string]int{"": MaxLinks, "acme": MaxLinksOfTenants} {
		r, _, err := s.decode(encoded(t, full("p", "u-p", func(p *v1alpha1.BpfProgram) {
			ofApplication(p)
			p.Status.Links = slices.Repeat(p.Status.Links, MaxLinks)
			if p.Namespace = namespace; namespace != "" {
				p.OwnerReferences[1].Kind = "BpfApplication"
			}
		})))
		must(t, err)
		if d, kept := r.State.Value().Detail(); !kept || len(d.Links) != most || d.Left != MaxLinks-most {
			t.Errorf("namespace %q: %v, %d links, %d left out", namespace, kept, len(d.Links), d.Left)
		}
	}
}

// When details are wanted, all reports are read again.
func TestDetailsOfKnownReports(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"type":"ADDED","object":%s}`+"\n", encoded(t, full("one", "u-one", ofApplication)))
		_, _ = io.WriteString(w, `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"77","annotations":{"k8s.io/initial-events-end":"true"}}}}`+"\n")
		_ = http.NewResponseController(w).Flush()
		<-request.Context().Done()
	}))
	defer server.Close()
	scheme := runtime.NewScheme()
	must(t, v1alpha1.Install(scheme))
	api, err := kinds.NewClient(&rest.Config{Host: server.URL}, scheme)
	must(t, err)
	s := NewStore(&kinds.Kinds{}, v1alpha1.StateKinds)
	kept := make(chan bool, 10)
	s.Subscribe(func(c Change) {
		_, is := c.After.State.Value().Detail()
		kept <- is
	})
	ctx, stop := context.WithCancel(t.Context())
	var reflecting sync.WaitGroup
	p := clusterScoped(s)
	reflecting.Go(func() {
		p.reflect(ctx, liststream.New(api, p.kind.Resource(), runtime.NewParameterCodec(scheme), s.decode))
	})
	if <-kept {
		t.Error("details were kept before they were wanted")
	}
	s.KeepDetails()
	if !<-kept {
		t.Error("the report lacks its details")
	}
	n := 0
	s.Each(false, func(*Report) { n++ })
	s.Each(true, func(*Report) { n += 10 })
	if n != 1 {
		t.Errorf("%d reports", n)
	}
	stop()
	reflecting.Wait()
}
