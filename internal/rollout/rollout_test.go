// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package rollout

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

func program(change ...func(*v1alpha1.TcxProgram)) *v1alpha1.TcxProgram {
	o := &v1alpha1.TcxProgram{ObjectMeta: metav1.ObjectMeta{Name: "firewall", UID: "uid", Generation: 3}}
	o.Spec.BpfFunctionName, o.Spec.GlobalData = "pass", map[string][]byte{"limit": {1, 2}}
	for _, f := range change {
		f(o)
	}
	return o
}

func revision(t *testing.T, o v1alpha1.UserObject) Revision {
	t.Helper()
	r, err := RevisionOf(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestHash(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*v1alpha1.TcxProgram)
		same   bool
	}{
		"function":   {func(o *v1alpha1.TcxProgram) { o.Spec.BpfFunctionName = "drop" }, false},
		"priority":   {func(o *v1alpha1.TcxProgram) { o.Spec.Priority = 7 }, false},
		"globals":    {func(o *v1alpha1.TcxProgram) { o.Spec.GlobalData["limit"] = []byte{1, 3} }, false},
		"uid":        {func(o *v1alpha1.TcxProgram) { o.UID = "another" }, false},
		"restart":    {func(o *v1alpha1.TcxProgram) { o.Annotations = map[string]string{v1alpha1.AnnotationRestartedAt: "now"} }, false},
		"generation": {func(o *v1alpha1.TcxProgram) { o.Generation = 9 }, true},
		"labels":     {func(o *v1alpha1.TcxProgram) { o.Labels = map[string]string{"a": "b"} }, true},
		"annotation": {func(o *v1alpha1.TcxProgram) { o.Annotations = map[string]string{"a": "b"} }, true},
		"paused": {func(o *v1alpha1.TcxProgram) {
			o.Annotations = map[string]string{v1alpha1.AnnotationRolloutPaused: "true"}
		}, true},
		"nodes":  {func(o *v1alpha1.TcxProgram) { o.Spec.NodeSelector.MatchLabels = map[string]string{"a": "b"} }, true},
		"status": {func(o *v1alpha1.TcxProgram) { o.Status.ObservedGeneration = 3 }, true},
	} {
		t.Run(name, func(t *testing.T) {
			if same := revision(t, program()).Hash() == revision(t, program(test.change)).Hash(); same != test.same {
				t.Errorf("the revisions are the same: %v", same)
			}
		})
	}
}

// The API server stores fields in another order, and an agent or operator of another version could write them so.
func TestHashIsIndependentOfOrder(t *testing.T) {
	r := revision(t, program())
	stored, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var anything any
	if err := json.Unmarshal(stored, &anything); err != nil {
		t.Fatal(err)
	}
	if stored, err = json.Marshal(anything); err != nil {
		t.Fatal(err)
	}
	if sorted, err := Parse(stored); err != nil || sorted.Hash() != r.Hash() {
		t.Errorf("%v; %s and %s have different hashes", err, sorted.Spec, r.Spec)
	}
	// Numbers that differ beyond the precision of floating point are different.
	if (Revision{Spec: []byte(`{"offset":9007199254740993}`)}).Hash() == (Revision{Spec: []byte(`{"offset":9007199254740992}`)}).Hash() {
		t.Error("two offsets have one hash")
	}
	hashes := map[string]string{r.Hash(): string(r.Spec), "": "no hash"}
	for _, spec := range []string{"{", "", "null", "7"} {
		damaged := Revision{Spec: []byte(spec)}.Hash()
		if other, taken := hashes[damaged]; taken {
			t.Errorf("the damaged spec %q has the hash of %s", spec, other)
		}
		hashes[damaged] = spec
	}
}

func TestObject(t *testing.T) {
	o, err := revision(t, program()).Object("TcxProgram")
	if err != nil || o.GetGeneration() != 3 || o.GetUID() != "uid" || string(o.GetAppCommon().GlobalData["limit"]) != "\x01\x02" {
		t.Errorf("%v %+v", err, o)
	}
	if _, err := revision(t, program()).Object("Pod"); err == nil {
		t.Error("a Pod is a user object")
	}
	// A node that can't reach the API server, and so doesn't know the scope, rolls back to it nevertheless.
	links := `{"nodeSelector":{},"byteCode":{"path":"/x.o"},"programs":[{"name":"f","type":"XDP","xdp":{"links":[]}}]}`
	r := Revision{Metadata: Metadata{Name: "x", Namespace: "acme"}, Spec: []byte(links)}
	if o, err := r.Object("BpfApplication"); err != nil || *o.GetAppCommon().ByteCode.Path != "/x.o" || o.GetNamespace() != "acme" {
		t.Errorf("a namespaced BpfApplication: %v %+v", err, o)
	}
}

func TestPosition(t *testing.T) {
	canary := Canaries(&metav1.LabelSelector{MatchLabels: map[string]string{"canary": "true"}})
	set := map[string]string{"canary": "true"}
	if p := Position("uid", "a", nil, canary); p < others || p >= end || p != Position("uid", "a", nil, nil) {
		t.Errorf("a has position %d", p)
	}
	if p := Position("uid", "a", set, canary); p < 0 || p >= others || p+others != Position("uid", "a", nil, canary) {
		t.Errorf("canary a has position %d", p)
	}
	if Position("uid", "a", nil, nil) == Position("another", "a", nil, nil) {
		t.Error("another object has the same order")
	}
	for name, selector := range map[string]labels.Selector{
		"none":    Canaries(nil),
		"empty":   Canaries(&metav1.LabelSelector{}),
		"invalid": Canaries(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "?"}}}),
	} {
		if Position("uid", "a", set, selector) < others {
			t.Errorf("%s selects a canary", name)
		}
	}
}

func TestAssign(t *testing.T) {
	old := program(func(o *v1alpha1.TcxProgram) { o.Generation, o.Spec.BpfFunctionName = 2, "old" })
	stored, err := json.Marshal(revision(t, old))
	if err != nil {
		t.Fatal(err)
	}
	previous := &v1alpha1.RolloutRevision{Revision: 1, Object: runtime.RawExtension{Raw: stored}}
	hash := revision(t, program()).Hash()
	here := Position("uid", "node", nil, nil)
	status := func(until *int64, previous *v1alpha1.RolloutRevision) *v1alpha1.RolloutStatus {
		return &v1alpha1.RolloutStatus{Hash: hash, Until: until, Previous: previous}
	}
	other := status(nil, nil)
	other.Hash = "another"
	for name, test := range map[string]struct {
		status   *v1alpha1.RolloutStatus
		governed Governed
		function string
		held     bool
	}{
		"no policy":                   {nil, Free, "pass", false},
		"policies aren't read":        {nil, Unknown, "pass", true},
		"not decided":                 {nil, Staged, "pass", true},
		"another revision is decided": {other, Staged, "pass", true},
		"complete":                    {status(nil, nil), Staged, "pass", false},
		"its turn":                    {status(new(here+1), previous), Staged, "pass", false},
		"not its turn":                {status(new(here), previous), Staged, "old", false},
		"not its turn, and no other":  {status(new(here), nil), Staged, "", false},
		// Whoever can write a status can't choose what runs.
		"the status alone names a revision":     {status(new(here), previous), Free, "pass", true},
		"the status alone removes the programs": {status(new(here), nil), Free, "pass", true},
		"before policies are read":              {status(new(here), previous), Unknown, "pass", true},
		"its turn, before policies are read":    {status(new(here+1), previous), Unknown, "pass", false},
	} {
		t.Run(name, func(t *testing.T) {
			o := program(func(o *v1alpha1.TcxProgram) {
				o.Status.Rollout = test.status
				o.Spec.NodeSelector.MatchLabels = map[string]string{"a": "b"}
			})
			got, err := Assign("TcxProgram", o, test.governed, "node", nil)
			if err != nil || got.Held != test.held || got.Previous != (test.function != "pass") {
				t.Fatalf("%v %+v", err, got)
			}
			function := ""
			if is, ok := got.Object.(*v1alpha1.TcxProgram); ok {
				function = is.Spec.BpfFunctionName
				if is.Name != "firewall" || is.UID != "uid" || is.Spec.NodeSelector.MatchLabels["a"] != "b" {
					t.Errorf("the object is %+v", is)
				}
			}
			if function != test.function {
				t.Errorf("the node runs %q, want %q", function, test.function)
			}
		})
	}
	damaged := status(new(here), &v1alpha1.RolloutRevision{Object: runtime.RawExtension{Raw: []byte("{")}})
	if _, err := Assign("TcxProgram", program(func(o *v1alpha1.TcxProgram) { o.Status.Rollout = damaged }), Staged, "node", nil); err == nil {
		t.Error("a damaged revision is assigned")
	}
}

// The annotation of a node with as much as it can have fits into the metadata of an object.
func TestHealth(t *testing.T) {
	at := metav1.NewTime(time.Unix(1_800_000_000, 0))
	owner := v1alpha1.BpfNodeOwner{Kind: "BpfNsApplication", Namespace: strings.Repeat("n", 63), Name: strings.Repeat("o", 253)}
	status := &v1alpha1.BpfNodeStatus{}
	for i := range 4000 {
		status.Conflicts = append(status.Conflicts, v1alpha1.BpfNodeConflict{Owner: &owner, Since: &at, Message: strings.Repeat("m", 4096)}, v1alpha1.BpfNodeConflict{Message: "of no object"})
		status.Programs = append(status.Programs, v1alpha1.BpfNodeProgram{
			ID: uint32(i), LoadedAt: &at, Owner: &owner, RunTime: &v1alpha1.BpfNodeRunTime{AverageNanoseconds: 123_456_789, PreviousNanoseconds: 123_456_789},
		})
	}
	text := HealthOf(status).String()
	if len(text) > 200<<10 {
		t.Errorf("%d bytes", len(text))
	}
	h, err := ParseHealth(text)
	if err != nil || len(h.Conflicts) != maxConflicts || len(h.RunTimes) != maxRunTimes || h.RunTimes[maxRunTimes-1].Program != 3999 ||
		h.Conflicts[0].BpfNodeOwner != owner || !h.Conflicts[0].Since.Equal(&at) {
		t.Errorf("%v, %d conflicts, and %d run times", err, len(h.Conflicts), len(h.RunTimes))
	}
	if text := HealthOf(&v1alpha1.BpfNodeStatus{}).String(); text != "" {
		t.Errorf("nothing is %q", text)
	}
	// The owner of a namespace causes it, and must not halt the rollout of a cluster-scoped object.
	tenants := v1alpha1.BpfNodeConflict{Type: v1alpha1.BpfNodeNamespacedEarlier, Owner: &owner, Since: &at, Message: "m"}
	if h := HealthOf(&v1alpha1.BpfNodeStatus{Conflicts: []v1alpha1.BpfNodeConflict{tenants}}); len(h.Conflicts) > 0 {
		t.Errorf("%+v", h)
	}
}

// Conflicts in pods, where tenants decide what is attached, aren't about cluster-scoped objects.
func TestHealthOfConflicts(t *testing.T) {
	early, late := metav1.NewTime(time.Unix(1_800_000_000, 0)), metav1.NewTime(time.Unix(1_800_000_009, 0))
	shared, own := v1alpha1.BpfNodeOwner{Kind: "TcxProgram", Name: "a"}, v1alpha1.BpfNodeOwner{Kind: "TcxNsProgram", Namespace: "tenant", Name: "a"}
	program := func(id uint32, owner *v1alpha1.BpfNodeOwner, loaded metav1.Time, netns string) v1alpha1.BpfNodeProgram {
		return v1alpha1.BpfNodeProgram{ID: id, Owner: owner, LoadedAt: &loaded, AttachPoints: []v1alpha1.BpfNodeAttachPoint{{Type: "tcx/ingress", Interface: "eth0", NetNs: netns}}}
	}
	for name, c := range map[string]struct {
		owner     v1alpha1.BpfNodeOwner
		program   uint32
		since     metav1.Time
		counts    bool
		afterLoad bool
	}{
		"on the node":                    {shared, 1, late, true, true},
		"before the programs are loaded": {shared, 1, early, true, false},
		"in a pod":                       {shared, 2, late, false, false},
		"in a pod, of its own namespace": {own, 2, late, true, false},
		"in another pod":                 {shared, 5, late, false, false},
		"of a limit":                     {shared, 0, late, true, true},
		"of a program that isn't listed": {shared, 9, late, true, true},
	} {
		h := HealthOf(&v1alpha1.BpfNodeStatus{
			Programs:  []v1alpha1.BpfNodeProgram{program(5, nil, early, "4026532614"), program(1, nil, early, ""), program(2, nil, early, "4026532614"), program(3, &shared, early, ""), program(4, &shared, late, "")},
			Conflicts: []v1alpha1.BpfNodeConflict{{Type: "EarlierInChain", ProgramID: c.program, Owner: &c.owner, Since: &c.since, Message: name}},
		})
		if (len(h.Conflicts) == 1) != c.counts || c.counts && h.Conflicts[0].AfterLoad() != c.afterLoad {
			t.Errorf("%s: %+v", name, h.Conflicts)
		}
	}
}

// A conflict without an object or a date says nothing about a rollout.
func TestHealthOfIncompleteConflicts(t *testing.T) {
	at, owner := metav1.NewTime(time.Unix(1_800_000_000, 0)), v1alpha1.BpfNodeOwner{Kind: "TcxProgram", Name: "a"}
	for name, c := range map[string]v1alpha1.BpfNodeConflict{
		"of no object":   {Since: &at, Message: "m"},
		"without a date": {Owner: &owner, Message: "m"},
	} {
		if h := HealthOf(&v1alpha1.BpfNodeStatus{Conflicts: []v1alpha1.BpfNodeConflict{c}}); len(h.Conflicts) > 0 {
			t.Errorf("%s: %+v", name, h)
		}
	}
}

// The operator recognizes a conflict that ends and returns. Its message can have other numbers then.
func TestConflictID(t *testing.T) {
	owner := v1alpha1.BpfNodeOwner{Kind: "TcxProgram", Name: "a"}
	c := Conflict{BpfNodeOwner: owner, Type: "EarlierInChain", Program: 7, Message: "m"}
	for name, test := range map[string]struct {
		change func(*Conflict)
		same   bool
	}{
		"message":               {func(c *Conflict) { c.Message = "n" }, true},
		"date":                  {func(c *Conflict) { c.Since = metav1.Now() }, true},
		"type":                  {func(c *Conflict) { c.Type = "LimitReached" }, false},
		"program":               {func(c *Conflict) { c.Program = 8 }, false},
		"object":                {func(c *Conflict) { c.Name = "b" }, false},
		"message of no program": {func(c *Conflict) { c.Program = 0 }, false},
	} {
		other := c
		test.change(&other)
		if same := other.ID() == c.ID(); same != test.same {
			t.Errorf("%s: the same conflict: %v", name, same)
		}
	}
	// An earlier inspector doesn't say which program it is.
	one, other := c, c
	one.Program, other.Program, other.Message = 0, 0, "n"
	if one.ID() == other.ID() {
		t.Error("two conflicts of unknown programs are one")
	}
}

// An object is marked once. Afterwards, the cache drops what the hash is about.
func TestMarkObject(t *testing.T) {
	o := program()
	hash := revision(t, o).Hash()
	for range 2 {
		MarkObject(o)
		if o.Annotations[Mark] != hash {
			t.Fatalf("marked with %q, want %q", o.Annotations[Mark], hash)
		}
		o.Spec.GlobalData = nil
	}
	shared := map[string]string{"a": "b"}
	MarkObject(program(func(o *v1alpha1.TcxProgram) { o.Annotations = shared }))
	if len(shared) != 1 {
		t.Errorf("the annotations of another copy are %v", shared)
	}
}

func FuzzParseHealth(f *testing.F) {
	for _, text := range []string{"", "{}", `{"conflicts":[{"kind":"TcxProgram","name":"a","since":"2026-01-01T00:00:00Z","message":"m"}]}`, `{"runTimes":[{"program":1,"average":-1}]}`, "x"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		h, err := ParseHealth(text)
		if err != nil {
			return
		}
		again, err := ParseHealth(h.String())
		if err != nil || again.String() != h.String() {
			t.Errorf("%q is %+v, and then %+v, %v", text, h, again, err)
		}
	})
}
