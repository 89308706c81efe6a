// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package record

import (
	"context"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/bpfman/bpfman-operator/agent/cluster"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

func reportAt(version string) *v1alpha1.BpfProgram {
	o := &v1alpha1.BpfProgram{}
	o.Name, o.UID, o.ResourceVersion = "p-1", "uid-p", version
	o.OwnerReferences = []metav1.OwnerReference{{Kind: "TcxProgram", Name: "p", Controller: new(true)}}
	return o
}

// A list updates the record with changes by others, but not with reports that were written after it.
func TestAListIsComparedWithWhatWasWritten(t *testing.T) {
	key := program.Key{Kind: "TcxProgram", Name: "p"}
	for name, test := range map[string]struct {
		recorded string // resource version, "" for none
		doubtful bool
		listed   string // resource version in the list, "" for none
		version  string // resource version of the list
		changed  bool
		keeps    string // expected resource version in the record
	}{
		"as it was written":                   {recorded: "5", listed: "5", version: "9", keeps: "5"},
		"written while the list was read":     {recorded: "11", listed: "5", version: "9", keeps: "11"},
		"created while the list was read":     {recorded: "11", version: "9", keeps: "11"},
		"changed by others":                   {recorded: "5", listed: "7", version: "9", changed: true, keeps: "7"},
		"deleted by others":                   {recorded: "5", version: "9", changed: true},
		"left by an earlier run":              {listed: "5", version: "9", changed: true, keeps: "5"},
		"written with an outcome not known":   {recorded: "5", doubtful: true, listed: "5", version: "9", keeps: "5"},
		"the same outcome, and it is deleted": {recorded: "5", doubtful: true, version: "9", changed: true},
	} {
		t.Run(name, func(t *testing.T) {
			var r memory
			if test.recorded != "" {
				r.put(key, reportAt(test.recorded), 0)
			}
			if test.doubtful {
				r.doubt(key, "p-1")
			}
			var list []v1alpha1.ProgramObject
			if test.listed != "" {
				list = append(list, reportAt(test.listed))
			}
			changed := r.replace(false, list, test.version, 0)
			if slices.Contains(changed, key) != test.changed || len(changed) > 1 {
				t.Errorf("changed are %v", changed)
			}
			kept := ""
			if o := r.of(key)["p-1"]; o != nil {
				kept = o.GetResourceVersion()
			}
			if kept != test.keeps {
				t.Errorf("version %q is recorded", kept)
			}
			if !r.isListed(false) || r.isListed(true) {
				t.Error("another scope is listed")
			}
		})
	}
}

// A list of cluster-scoped reports says nothing about those of namespaces, and a report without an owner is nobody's.
func TestAListIsOfItsScope(t *testing.T) {
	var r memory
	key := program.Key{Kind: "TcxNsProgram", Namespace: "tenant", Name: "p"}
	r.put(key, reportAt("7"), 0)
	orphan := reportAt("8")
	orphan.OwnerReferences = nil
	if changed := r.replace(false, []v1alpha1.ProgramObject{orphan}, "60", r.begin()); len(changed) > 0 || len(r.owners) != 1 || len(r.of(key)) != 1 {
		t.Errorf("changed are %v, and recorded %v", changed, r.owners)
	}
}

// A response that is older than the record is ignored.
func TestAnOldAnswerIsNotRecorded(t *testing.T) {
	key := program.Key{Kind: "TcxProgram", Name: "p"}
	var r memory
	if !r.put(key, reportAt("7"), 0) || r.put(key, reportAt("6"), 0) || r.put(key, reportAt("7"), 0) {
		t.Error("what is news isn't told from what is none")
	}
	if got := r.of(key)["p-1"].GetResourceVersion(); got != "7" {
		t.Errorf("version %s is recorded", got)
	}
	r.drop(key, "p-1", r.begin())
	if len(r.of(key)) != 0 || len(r.owners) != 0 {
		t.Errorf("left is %v", r.owners)
	}
}

// What is read by name, or in a consistent list, counts more than resource versions: after etcd was restored from a backup,
// they are lower than those in the record. A write during the read counts more than the read.
func TestReadsAreBelievedAfterARestore(t *testing.T) {
	key := program.Key{Kind: "TcxProgram", Name: "p"}
	recorded := func(m *memory) string {
		if o := m.of(key)["p-1"]; o != nil {
			return o.GetResourceVersion()
		}
		return ""
	}
	for name, c := range map[string]struct {
		read   func(m *memory, began moment)
		writes string // resource version of a write during the read, "" for none
		want   string
	}{
		"an older one by name":                 {read: func(m *memory, began moment) { m.put(key, reportAt("50"), began) }, want: "50"},
		"an older one in a list":               {read: func(m *memory, began moment) { m.replace(false, []v1alpha1.ProgramObject{reportAt("50")}, "60", began) }, want: "50"},
		"none by name":                         {read: func(m *memory, began moment) { m.drop(key, "p-1", began) }},
		"none in a list":                       {read: func(m *memory, began moment) { m.replace(false, nil, "60", began) }},
		"an older one, and written meanwhile":  {read: func(m *memory, began moment) { m.put(key, reportAt("50"), began) }, writes: "101", want: "101"},
		"none by name, and written meanwhile":  {read: func(m *memory, began moment) { m.drop(key, "p-1", began) }, writes: "101", want: "101"},
		"none in a list, written meanwhile":    {read: func(m *memory, began moment) { m.replace(false, nil, "60", began) }, writes: "101", want: "101"},
		"an older list of unknown age":         {read: func(m *memory, _ moment) { m.replace(false, []v1alpha1.ProgramObject{reportAt("50")}, "60", 0) }, want: "100"},
		"a list of unknown age without it":     {read: func(m *memory, _ moment) { m.replace(false, nil, "60", 0) }, want: "100"},
		"a newer list of unknown age, without": {read: func(m *memory, _ moment) { m.replace(false, nil, "160", 0) }},
	} {
		t.Run(name, func(t *testing.T) {
			var m memory
			m.put(key, reportAt("100"), 0)
			began := m.begin()
			if c.writes != "" {
				m.put(key, reportAt(c.writes), 0)
			}
			c.read(&m, began)
			if got := recorded(&m); got != c.want {
				t.Errorf("version %q is recorded, want %q", got, c.want)
			}
		})
	}
}

// Reports that must be read before they are used: after a failed write, and while their deletion is delayed by a
// finalizer.
func TestReportsInDoubt(t *testing.T) {
	key := program.Key{Kind: "TcxProgram", Name: "p"}
	var r memory
	r.doubt(key, "created-perhaps")
	if got := r.doubted(key); !maps.Equal(got, map[string]doubt{"created-perhaps": uncertain}) || len(r.of(key)) != 0 {
		t.Errorf("in doubt are %v", got)
	}
	r.drop(key, "created-perhaps", r.begin())
	held := reportAt("7")
	held.DeletionTimestamp = &metav1.Time{}
	r.put(key, held, 0)
	if got := r.doubted(key); !maps.Equal(got, map[string]doubt{"p-1": deleting}) {
		t.Errorf("in doubt are %v", got)
	}
	r.put(key, reportAt("8"), 0)
	if got := r.doubted(key); len(got) != 0 {
		t.Errorf("in doubt are %v", got)
	}
}

// answers is an API server without reports, which is called with the query of each request.
type answers func(url.Values)

func (a answers) RoundTrip(request *http.Request) (*http.Response, error) {
	a(request.URL.Query())
	body := `{"apiVersion":"bpfman.io/v1alpha1","kind":"BpfProgramList","metadata":{"resourceVersion":"7"},"items":[]}`
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: request,
	}, nil
}

// The first list comes from the API server's watch cache, because many agents can start at the same time. A requested
// list is consistent, because it must contain the change that led to the request.
func TestListsAreConsistentWhereAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		versions, asked := make(chan string, 10), make(chan time.Duration, 1)
		config := &rest.Config{Transport: answers(func(query url.Values) { versions <- query.Get("resourceVersion") })}
		server, err := cluster.New(config, "bpfman-agent", "node", "", logr.Discard())
		if err == nil {
			err = server.Serve(nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		r := &Reports{Cluster: server, NodeName: "node", Changed: func() {}}
		ctx, stop := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		ended.Go(func() { r.keepListing(ctx, v1alpha1.ProgramKind(false), asked) })
		if got := <-versions; got != "0" {
			t.Errorf("the first list is of version %q", got)
		}
		asked <- 0
		if got := <-versions; got != "" {
			t.Errorf("the list that was asked for is of version %q", got)
		}
		if got := <-versions; got != "0" {
			t.Errorf("the next list is of version %q", got)
		}
		stop()
		ended.Wait()
	})
}
