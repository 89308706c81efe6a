// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package record

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/agent/report"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// stored is an API server with the reports of one node. It notes its requests.
type stored struct {
	reports  map[string]*v1alpha1.BpfProgram
	version  int
	requests []string
}

func (s *stored) serve(request *http.Request) (*http.Response, error) {
	name := path.Base(strings.TrimSuffix(request.URL.Path, "/status"))
	what := request.Method
	if strings.HasSuffix(request.URL.Path, "/status") {
		what += " status"
	}
	s.requests = append(s.requests, what)
	if request.Method == http.MethodGet {
		wanted, _ := strings.CutPrefix(request.URL.Query().Get("fieldSelector"), "metadata.name=")
		list := v1alpha1.BpfProgramList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.version)}}
		if o := s.reports[wanted]; o != nil {
			list.Items = append(list.Items, *o)
		}
		return s.answer(request, list)
	}
	if request.Method == http.MethodDelete {
		delete(s.reports, name)
		return s.answer(request, metav1.Status{Status: metav1.StatusSuccess})
	}
	var o v1alpha1.BpfProgram
	if err := json.NewDecoder(request.Body).Decode(&o); err != nil {
		return nil, err
	}
	// The status is a resource of its own.
	switch before := s.reports[o.Name]; what {
	case "PUT status":
		status := o.Status
		o = *before.DeepCopy()
		o.Status = status
	case "PUT":
		o.Status = before.Status
	default:
		if before != nil {
			return answering(request, http.StatusConflict, string(metav1.StatusReasonAlreadyExists))
		}
		o.Status = v1alpha1.BpfProgramStatus{}
	}
	s.version++
	o.UID, o.ResourceVersion = types.UID("uid of "+o.Name), strconv.Itoa(s.version)
	s.reports[o.Name] = &o
	return s.answer(request, o)
}

func (*stored) answer(request *http.Request, object any) (*http.Response, error) {
	content, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	return answering(request, http.StatusOK, string(content))
}

// sent returns the requests since the last call.
func (s *stored) sent() string {
	all := strings.Join(s.requests, ", ")
	s.requests = nil
	return all
}

// running returns programs of an application's members, as the daemon has them.
func running(owner program.Owner, loadID string) []daemon.Program {
	var all []daemon.Program
	for n, member := range owner.Members {
		all = append(all, daemon.Program{ID: uint32(7 + n), Function: member.LoadInfo().GetName(), OwnerUID: string(owner.UID), LoadID: loadID})
	}
	return all
}

// Each request costs the API server something, so a report is written when it differs, and then only what differs.
func TestReportsAreWrittenWhenTheyDiffer(t *testing.T) {
	server := &stored{reports: map[string]*v1alpha1.BpfProgram{}}
	r := reportsTo(t, server.serve)
	changes := 0
	r.Changed = func() { changes++ }
	two, want := members(2)
	one, less := members(1)
	loaded := running(two, want.Loads[0].ID)
	fails := func(text string) report.Outcome { return report.Outcome{Loads: map[int]error{0: errors.New(text)}} }
	write := func(what, requests string, do func() error) {
		t.Helper()
		before := changes
		if err := do(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got := server.sent(); got != requests {
			t.Errorf("%s: sent %q, want %q", what, got, requests)
		}
		if (changes > before) != (requests != "") {
			t.Errorf("%s: the change is told %d times", what, changes-before)
		}
	}
	write("new", "POST, PUT status, POST, PUT status", func() error { return r.Write(t.Context(), two.Key, &two, want, nil, fails("not yet")) })
	write("the same", "", func() error { return r.Write(t.Context(), two.Key, &two, want, nil, fails("not yet")) })
	write("another error", "PUT status, PUT status", func() error { return r.Write(t.Context(), two.Key, &two, want, nil, fails("never")) })
	write("loaded", "PUT, PUT status, PUT, PUT status", func() error { return r.Write(t.Context(), two.Key, &two, want, loaded, report.Outcome{}) })
	write("the daemon is gone", "", func() error { return r.WriteUnreachable(t.Context(), two, want, errors.New("no socket")) })
	stays := report.Outcome{Removals: []error{errors.New("unload 8: busy")}}
	write("a program that can't be unloaded", "PUT status, PUT status", func() error { return r.Write(t.Context(), one.Key, &one, less, running(one, less.Loads[0].ID), stays) })
	write("the same again", "", func() error { return r.Write(t.Context(), one.Key, &one, less, running(one, less.Loads[0].ID), stays) })
	for name, o := range server.reports {
		if got := o.Status.Conditions[0].Type; got != string(v1alpha1.BpfProgCondNotUnloaded) {
			t.Errorf("%s says %s", name, got)
		}
	}
	write("a member less", "PUT status, DELETE", func() error {
		return r.Write(t.Context(), one.Key, &one, less, running(one, less.Loads[0].ID), report.Outcome{})
	})
	write("deleted", "DELETE", func() error { return r.Write(t.Context(), one.Key, nil, less, nil, report.Outcome{}) })
	if len(server.reports)+len(r.All()) != 0 {
		t.Errorf("stored are %v, and recorded %v", server.reports, r.All())
	}
}

// Programs run on while the daemon doesn't answer. What was changed since can't be loaded.
func TestUnreachableDaemon(t *testing.T) {
	server := &stored{reports: map[string]*v1alpha1.BpfProgram{}}
	r := reportsTo(t, server.serve)
	owner, want := members(1)
	owner.Generation = 1
	gone := errors.New("no socket")
	name := report.Name(owner, owner.Members[0].ID, "node")
	says := func(condition v1alpha1.BpfProgramConditionType, id uint32) {
		t.Helper()
		o := server.reports[name]
		if o == nil || o.Status.Conditions[0].Type != string(condition) || o.Status.ProgramID != id {
			t.Fatalf("%+v, want %s of program %d", o, condition, id)
		}
	}
	for range 2 {
		if err := r.WriteUnreachable(t.Context(), owner, want, gone); err != nil {
			t.Fatal(err)
		}
		says(v1alpha1.BpfProgCondNotLoaded, 0)
	}
	if err := r.Write(t.Context(), owner.Key, &owner, want, running(owner, want.Loads[0].ID), report.Outcome{}); err != nil {
		t.Fatal(err)
	}
	says(v1alpha1.BpfProgCondLoaded, 7)
	owner.Generation = 2
	if err := r.WriteUnreachable(t.Context(), owner, want, gone); err != nil {
		t.Fatal(err)
	}
	says(v1alpha1.BpfProgCondNotLoaded, 7)
}

// Labels and annotations of other clients stay, and their changes of what is the agent's don't.
func TestContentOfOthers(t *testing.T) {
	server := &stored{reports: map[string]*v1alpha1.BpfProgram{}}
	r := reportsTo(t, server.serve)
	owner, want := members(1)
	name := report.Name(owner, owner.Members[0].ID, "node")
	write := func() {
		t.Helper()
		if err := r.Write(t.Context(), owner.Key, &owner, want, nil, report.Outcome{}); err != nil {
			t.Fatal(err)
		}
	}
	write()
	for what, change := range map[string]func(*v1alpha1.BpfProgram){
		"a label":                func(o *v1alpha1.BpfProgram) { o.Labels["theirs"] = "yes" },
		"an annotation":          func(o *v1alpha1.BpfProgram) { o.Annotations = map[string]string{"theirs": "yes"} },
		"a label of the agent's": func(o *v1alpha1.BpfProgram) { o.Labels[v1alpha1.LabelHostname] = "other" },
		"a label less":           func(o *v1alpha1.BpfProgram) { delete(o.Labels, v1alpha1.LabelOwnedByProgram) },
		"the spec":               func(o *v1alpha1.BpfProgram) { o.Spec.Type = "xdp" },
	} {
		o := server.reports[name].DeepCopy()
		server.version++
		o.ResourceVersion = strconv.Itoa(server.version)
		change(o)
		server.reports[name] = o
		if err := r.Read(t.Context(), owner.Key, name); err != nil {
			t.Fatal(err)
		}
		write()
		o = server.reports[name]
		if o.Labels[v1alpha1.LabelHostname] != "node" || o.Labels[v1alpha1.LabelOwnedByProgram] != "app" || o.Spec.Type != "application" {
			t.Errorf("%s: %+v", what, o)
		}
	}
	if o := server.reports[name]; o.Labels["theirs"] != "yes" || o.Annotations["theirs"] != "yes" {
		t.Errorf("what others wrote is lost: %v, %v", o.Labels, o.Annotations)
	}
}

// A read by name replaces the record, and reports a change: a write whose response was lost can have taken effect.
func TestReadsByName(t *testing.T) {
	key := program.Key{Kind: "TcxProgram", Name: "p"}
	for name, test := range map[string]struct {
		recorded, there string // resource versions, "" for none
		changed         bool
	}{
		"as recorded":             {"7", "7", false},
		"another version":         {"7", "8", true},
		"deleted":                 {"7", "", true},
		"there, but not recorded": {"", "8", true},
		"neither":                 {"", "", false},
	} {
		server := &stored{reports: map[string]*v1alpha1.BpfProgram{}}
		if test.there != "" {
			server.reports["p-1"] = reportAt(test.there)
		}
		r := reportsTo(t, server.serve)
		if test.recorded != "" {
			r.known.put(key, reportAt(test.recorded), 0)
		}
		changed := false
		r.Changed = func() { changed = true }
		if err := r.Read(t.Context(), key, "p-1"); err != nil {
			t.Fatal(err)
		}
		got := ""
		if o := r.Recorded(key)["p-1"]; o != nil {
			got = o.GetResourceVersion()
		}
		if got != test.there || changed != test.changed {
			t.Errorf("%s: version %q is recorded, want %q; changed: %v", name, got, test.there, changed)
		}
	}
}

// A report in doubt is read once. It matters to plans even if it is as it was recorded: its owner's write hasn't succeeded.
func TestSettle(t *testing.T) {
	key := program.Key{Kind: "TcxProgram", Name: "p"}
	held := func(version string) *v1alpha1.BpfProgram {
		o := reportAt(version)
		o.DeletionTimestamp = new(metav1.Now())
		return o
	}
	for name, test := range map[string]struct {
		there   *v1alpha1.BpfProgram
		record  func(*memory)
		matters bool
		doubted int
	}{
		"nothing in doubt":                {reportAt("7"), func(m *memory) { m.put(key, reportAt("7"), 0) }, false, 0},
		"as recorded":                     {reportAt("7"), func(m *memory) { m.put(key, reportAt("7"), 0); m.doubt(key, "p-1") }, true, 0},
		"created":                         {reportAt("7"), func(m *memory) { m.doubt(key, "p-1") }, true, 0},
		"not created":                     {nil, func(m *memory) { m.doubt(key, "p-1") }, true, 0},
		"a finalizer delays its deletion": {held("7"), func(m *memory) { m.put(key, held("7"), 0) }, false, 1},
		"deleted at last":                 {nil, func(m *memory) { m.put(key, held("7"), 0) }, true, 0},
	} {
		server := &stored{reports: map[string]*v1alpha1.BpfProgram{}}
		if test.there != nil {
			server.reports["p-1"] = test.there
		}
		r := reportsTo(t, server.serve)
		test.record(&r.known)
		matters, err := r.Settle(t.Context(), key)
		if err != nil || matters != test.matters || len(r.InDoubt(key)) != test.doubted {
			t.Errorf("%s: matters: %v, in doubt %q, %v", name, matters, r.InDoubt(key), err)
		}
	}
}

// Programs whose maps an owner can share: of its scope, and not its own.
func TestMapOwners(t *testing.T) {
	r := reportsTo(t, func(request *http.Request) (*http.Response, error) { return answering(request, http.StatusOK, "{}") })
	r.Start(func(func(context.Context)) {})
	sharing := &v1alpha1.TcxProgram{ObjectMeta: metav1.ObjectMeta{Name: "shares", UID: "own"}}
	sharing.Spec.MapOwnerSelector.MatchLabels = map[string]string{"a": "b"}
	owner := program.OwnerOf("TcxProgram", sharing)
	if _, err := r.MapOwners(owner); err == nil {
		t.Error("the reports count as listed")
	}
	for _, namespaced := range []bool{false, true} {
		r.known.replace(namespaced, nil, "1", 0)
	}
	add := func(namespace, name string, uid types.UID, id uint32, of *uint32) {
		key := program.Key{Kind: "TcxProgram", Namespace: namespace, Name: name}
		var o v1alpha1.ProgramObject = &v1alpha1.BpfProgram{}
		if namespace != "" {
			o = &v1alpha1.BpfNsProgram{}
		}
		o.SetName(name + "-1")
		o.SetNamespace(namespace)
		o.SetOwnerReferences([]metav1.OwnerReference{{Kind: key.Kind, Name: name, UID: uid, Controller: new(true)}})
		o.GetStatus().ProgramID, o.GetStatus().MapOwnerID = id, of
		r.known.put(key, o, 0)
	}
	add("", "shares", "own", 1, nil)
	add("", "owns", "a", 2, nil)
	add("", "uses", "b", 3, new(uint32(2)))
	add("tenant", "theirs", "c", 4, nil)
	found, err := r.MapOwners(owner)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range found {
		got = append(got, fmt.Sprint(m.Name, " ", m.ID))
	}
	slices.Sort(got)
	if want := []string{"owns-1 2", "uses-1 2"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	sharing.Spec.MapOwnerSelector = metav1.LabelSelector{}
	if found, err := r.MapOwners(program.OwnerOf("TcxProgram", sharing)); found != nil || err != nil {
		t.Errorf("of an owner that shares nothing: %v, %v", found, err)
	}
}
