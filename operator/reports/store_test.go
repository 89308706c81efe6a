// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package reports

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/kinds"
	"github.com/bpfman/bpfman-operator/internal/liststream"
)

func report(uid, node string, generation int64) *Report {
	return &Report{
		Name: "p-" + uid, UID: types.UID(uid),
		Owner: unique.Make(Owner{Kind: "TcxProgram", Name: "counter", UID: "u-counter"}),
		Node:  unique.Make(Node{Label: node}),
		State: unique.Make(State{Generation: generation}),
	}
}

func event(r *Report) runtime.Object { return liststream.Event(r, liststream.Metadata{}) }

func items(of ...*Report) []any {
	all := make([]any, len(of))
	for i, r := range of {
		all[i] = r
	}
	return all
}

// clusterScoped returns the store's part with BpfPrograms.
func clusterScoped(s *Store) *part {
	return s.parts[slices.IndexFunc(s.parts, func(p *part) bool { return !p.kind.Namespaced })]
}

// record formats changes as text, and counts reports like a subscriber.
type record struct {
	changes []string
	there   map[types.UID]*Report
}

func (r *record) subscriber(tb testing.TB) func(Change) {
	tb.Helper()
	r.there = map[types.UID]*Report{}
	say := func(x *Report) string {
		if x == nil {
			return "-"
		}
		return fmt.Sprintf("%s/%s/%d", x.UID, x.Node.Value().Label, x.State.Value().Generation)
	}
	return func(c Change) {
		r.changes = append(r.changes, say(c.Before)+" "+say(c.After))
		switch {
		case c.Before != nil && r.there[c.Before.UID] != c.Before:
			tb.Errorf("%s changes, of which the last was %s", say(c.Before), say(r.there[c.Before.UID]))
		case c.Before == nil && r.there[c.After.UID] != nil:
			tb.Errorf("%s is new twice", say(c.After))
		}
		if c.After == nil {
			delete(r.there, c.Before.UID)
		} else {
			r.there[c.After.UID] = c.After
		}
	}
}

func (r *record) expect(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(r.changes, want) {
		t.Errorf("changes\n%s\nwant\n%s", strings.Join(r.changes, "\n"), strings.Join(want, "\n"))
	}
	r.changes = nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestStore(t *testing.T) {
	s := NewStore(&kinds.Kinds{}, v1alpha1.StateKinds)
	p := clusterScoped(s)
	first, late := &record{}, &record{}
	s.Subscribe(first.subscriber(t))
	first.expect(t)
	if s.Listed(false) || s.Listed(true) {
		t.Error("nothing was listed")
	}

	must(t, p.Replace(items(report("1", "a", 1), report("2", "a", 1), report("3", "b", 1)), "5"))
	slices.Sort(first.changes)
	first.expect(t, "- 1/a/1", "- 2/a/1", "- 3/b/1")
	if !s.Listed(false) || s.Listed(true) {
		t.Errorf("listed: %v and %v", s.Listed(false), s.Listed(true))
	}

	must(t, p.Add(event(report("4", "b", 1))))
	must(t, p.Update(event(report("1", "a", 2))))
	must(t, p.Update(event(report("2", "b", 1))))
	must(t, p.Delete(event(report("3", "b", 1))))
	must(t, p.Delete(event(report("never seen", "b", 1))))
	first.expect(t, "- 4/b/1", "1/a/1 1/a/2", "2/a/1 2/b/1", "3/b/1 -")

	// Other objects than reports are refused.
	for _, wrong := range []any{nil, "text", &metav1.Status{}} {
		if p.Add(wrong) == nil || p.Delete(wrong) == nil || p.Replace([]any{wrong}, "6") == nil {
			t.Errorf("%v was taken for a report", wrong)
		}
	}
	first.expect(t)

	// A late subscriber gets the existing reports.
	s.Subscribe(late.subscriber(t))
	slices.Sort(late.changes)
	late.expect(t, "- 1/a/2", "- 2/b/1", "- 4/b/1")

	// A list after a lost watch: 1 was deleted and created again with the same name, 4 was deleted, and 2 has
	// changed.
	again := report("1 again", "a", 1)
	again.Name = "p-1"
	must(t, p.Replace(items(again, report("2", "b", 3)), "9"))
	for _, r := range []*record{first, late} {
		slices.Sort(r.changes[:2]) // deletions come first
		r.expect(t, "1/a/2 -", "4/b/1 -", "- 1 again/a/1", "2/b/1 2/b/3")
	}
	must(t, p.Replace(nil, "10"))
	if len(p.byUID)+len(p.byNode)+len(first.there) > 0 {
		t.Errorf("it keeps %v, %v", p.byUID, p.byNode)
	}
}

func TestOfANode(t *testing.T) {
	known := &kinds.Kinds{}
	s := NewStore(known, v1alpha1.StateKinds)
	for _, p := range s.parts {
		known.SetListed(p.kind.GroupVersionKind(), p.hasListed)
	}
	p := clusterScoped(s)
	if of, err := s.Of("a"); len(of) > 0 || !kinds.Unread(err) {
		t.Errorf("before they are listed: %v, %v", of, err)
	}
	must(t, p.Replace(items(report("1", "a", 1)), "1"))
	if of, err := s.Of("a"); len(of) != 1 || !kinds.Unread(err) {
		t.Errorf("of the kind that was listed: %v, %v", of, err)
	}
	for _, p := range s.parts {
		if p.kind.Namespaced {
			must(t, p.Replace(nil, "1"))
		}
	}
	if of, err := s.Of("a"); len(of) != 1 || err != nil {
		t.Errorf("%v, %v", of, err)
	}
	if of, err := s.Of("b"); len(of) > 0 || err != nil {
		t.Errorf("%v, %v", of, err)
	}
}

// After any sequence of changes, subscribers know what the store contains, and the store contains what the API
// server has.
func TestAnyOrder(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 0))
		s := NewStore(&kinds.Kinds{}, v1alpha1.StateKinds)
		p, served, early, late := clusterScoped(s), map[types.UID]*Report{}, &record{}, &record{}
		s.Subscribe(early.subscriber(t))
		some := func() *Report {
			return report(fmt.Sprint(random.IntN(20)), fmt.Sprint("n", random.IntN(4)), random.Int64N(3))
		}
		for step := range 60 {
			if step == 30 {
				s.Subscribe(late.subscriber(t))
			}
			switch r := some(); random.IntN(8) {
			case 0:
				maps.DeleteFunc(served, func(types.UID, *Report) bool { return random.IntN(3) == 0 })
				for range 5 {
					r := some()
					served[r.UID] = r
				}
				must(t, p.Replace(items(slices.Collect(maps.Values(served))...), ""))
			case 1, 2, 3:
				delete(served, r.UID)
				must(t, p.Delete(event(r)))
			default:
				served[r.UID] = r
				must(t, p.Update(event(r)))
			}
			checkSame(t, s, served)
		}
		if !maps.Equal(early.there, served) || !maps.Equal(late.there, served) {
			t.Fatalf("seed %d: subscribers know %v and %v of %v", seed, early.there, late.there, served)
		}
	}
}

func checkSame(t *testing.T, s *Store, served map[types.UID]*Report) {
	t.Helper()
	if p := clusterScoped(s); !maps.Equal(p.byUID, served) {
		t.Fatalf("the store has %v of %v", p.byUID, served)
	}
	n := 0
	for i := range 4 {
		of, _ := s.Of(fmt.Sprint("n", i))
		n += len(of)
		for _, r := range of {
			if served[r.UID] != r || r.Node.Value().Label != fmt.Sprint("n", i) {
				t.Fatalf("%v is no report of node %d", r, i)
			}
		}
	}
	if n != len(served) {
		t.Fatalf("nodes have %d reports of %d", n, len(served))
	}
}

// BenchmarkDecode measures the time and memory for decoding a report. The result bytes is the size of its JSON.
func BenchmarkDecode(b *testing.B) {
	data := encoded(b, full("counter-0a1b2c3d", "0b0c1d6e-7f60-4f0e-8a75-1c2d3e4f5a6b", nil))
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := decode(data); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkBytesPerReport measures the store's memory for each report, with 1,000 nodes and 50 programs on each.
func BenchmarkBytesPerReport(b *testing.B) {
	const nodes, programs = 1000, 50
	memory := func() uint64 {
		goruntime.GC()
		var m goruntime.MemStats
		goruntime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for b.Loop() {
		before := memory()
		s := NewStore(&kinds.Kinds{}, v1alpha1.StateKinds)
		p := clusterScoped(s)
		for n := range nodes {
			for i := range programs {
				r := decoded(b, full(fmt.Sprintf("counter-%d-%08x", i, n), types.UID(fmt.Sprintf("0b0c1d6e-7f60-4f0e-8a75-%06x%06x", n, i)), func(p *v1alpha1.BpfProgram) {
					p.Labels[v1alpha1.LabelHostname] = fmt.Sprintf("node-%d", n)
					p.Status.Node = p.Labels[v1alpha1.LabelHostname]
				}))
				if err := p.Add(event(r)); err != nil {
					b.Fatal(err)
				}
			}
		}
		b.ReportMetric(float64(memory()-before)/nodes/programs, "B/report")
		goruntime.KeepAlive(s)
	}
}

// The first events of a watch fill a store, or a list if an API server doesn't support these events. In both
// cases, it receives all later changes.
func TestReflect(t *testing.T) {
	for name, streams := range map[string]bool{"events": true, "list": false} {
		t.Run(name, func(t *testing.T) {
			event := func(kind, object string) string { return fmt.Sprintf(`{"type":%q,"object":%s}`+"\n", kind, object) }
			report := func(uid string) string { return string(encoded(t, full(uid, types.UID(uid), nil))) }
			var asked []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
				query := request.URL.Query()
				initial := query.Get("sendInitialEvents") == "true"
				asked = append(asked, fmt.Sprintf("watch=%v initial=%v at %s", query.Get("watch") != "", initial, query.Get("resourceVersion")))
				w.Header().Set("Content-Type", "application/json")
				switch {
				case initial && !streams:
					w.WriteHeader(http.StatusUnprocessableEntity)
					_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
					return
				case initial:
					_, _ = io.WriteString(w, event("ADDED", report("one"))+event("ADDED", report("two"))+
						event("BOOKMARK", `{"metadata":{"resourceVersion":"77","annotations":{"k8s.io/initial-events-end":"true"}}}`))
				case query.Get("watch") == "":
					_, _ = io.WriteString(w, `{"metadata":{"resourceVersion":"77"},"items":[`+report("one")+`,`+report("two")+`]}`)
					return
				}
				_, _ = io.WriteString(w, event("ADDED", report("three"))+event("DELETED", report("one")))
				_ = http.NewResponseController(w).Flush()
				<-request.Context().Done()
			}))
			defer server.Close()
			scheme := runtime.NewScheme()
			must(t, v1alpha1.Install(scheme))
			api, err := kinds.NewClient(&rest.Config{Host: server.URL}, scheme)
			must(t, err)

			s := NewStore(&kinds.Kinds{}, v1alpha1.StateKinds)
			changes := make(chan string, 10)
			s.Subscribe(func(c Change) {
				if c.After != nil {
					changes <- "+" + string(c.After.UID)
				} else {
					changes <- "-" + string(c.Before.UID)
				}
			})
			ctx, stop := context.WithCancel(t.Context())
			var reflecting sync.WaitGroup
			p := clusterScoped(s)
			reflecting.Go(func() {
				p.reflect(ctx, liststream.New(api, p.kind.Resource(), runtime.NewParameterCodec(scheme), s.decode))
			})
			var got []string
			for range 4 {
				got = append(got, <-changes)
			}
			stop()
			reflecting.Wait()
			slices.Sort(got[:2]) // in any order
			if want := []string{"+one", "+two", "+three", "-one"}; !slices.Equal(got, want) || !s.Listed(false) {
				t.Errorf("changes %q, want %q; listed: %v", got, want, s.Listed(false))
			}
			want := []string{"watch=true initial=true at "}
			if !streams {
				want = append(want, "watch=false initial=false at 0", "watch=true initial=false at 77")
			}
			if !slices.Equal(asked, want) {
				t.Errorf("asked for %q, want %q", asked, want)
			}
		})
	}
}
