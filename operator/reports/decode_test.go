// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package reports

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/liststream"
	"github.com/bpfman/bpfman-operator/internal/problem"
)

// full returns a report as an agent writes it.
func full(name string, uid types.UID, change func(*v1alpha1.BpfProgram)) *v1alpha1.BpfProgram {
	at := metav1.NewTime(time.Unix(1_790_000_000, 0))
	p := &v1alpha1.BpfProgram{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: uid, ResourceVersion: "7", Generation: 1, CreationTimestamp: at,
			Annotations: map[string]string{v1alpha1.AnnotationProgramID: "12"},
			Labels: map[string]string{
				v1alpha1.LabelOwnedByProgram: "counter", v1alpha1.LabelAppProgramID: "", v1alpha1.LabelHostname: "node-1", v1alpha1.LabelOwnerKind: "TcxProgram",
			},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Other", Name: "other", UID: "other"},
				{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "TcxProgram", Name: "counter", UID: "u-counter", Controller: new(true)},
			},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: v1alpha1.AgentFieldManager, Time: &at, Operation: metav1.ManagedFieldsOperationUpdate}},
		},
		Spec: v1alpha1.BpfProgramSpec{Type: "tcx", Maps: map[string]string{"stats": "/run/bpfman/fs/maps/12/stats"}},
		Status: v1alpha1.BpfProgramStatus{
			Node: "node-1", OwnerGeneration: 3, ProgramID: 12,
			Links:      []v1alpha1.BpfProgramLink{{AttachPoint: "eth0 ingress", State: v1alpha1.LinkAttached}},
			Conditions: []metav1.Condition{v1alpha1.BpfProgCondLoaded.Condition()},
		},
	}
	if change != nil {
		change(p)
	}
	return p
}

func encoded(tb testing.TB, o any) []byte {
	tb.Helper()
	data, err := json.Marshal(o)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

func decoded(tb testing.TB, o any) *Report {
	tb.Helper()
	report, _, err := decode(encoded(tb, o))
	if err != nil {
		tb.Fatal(err)
	}
	return report
}

// A failure is in pods if the program is attached, and only attach points in pods aren't.
func TestDecodeFailuresInPods(t *testing.T) {
	const node, pod, container = "eth0 ingress", "eth0 ingress in pod tenant/web", "malloc in libc of container tenant/web/app"
	for name, c := range map[string]struct {
		condition v1alpha1.BpfProgramConditionType
		attached  []string
		failed    []string
		want      bool
	}{
		"in a pod":               {v1alpha1.BpfProgCondNotLoaded, []string{node}, []string{pod}, true},
		"in a container":         {v1alpha1.BpfProgCondNotLoaded, []string{container}, []string{container}, true},
		"on the node too":        {v1alpha1.BpfProgCondNotLoaded, []string{pod}, []string{pod, node}, false},
		"everywhere":             {v1alpha1.BpfProgCondNotLoaded, nil, []string{pod, container}, false},
		"only the predecessor":   {v1alpha1.BpfProgCondNotLoaded, []string{node, pod}, nil, false},
		"a policy":               {v1alpha1.BpfProgCondPolicyDenied, []string{node}, []string{pod}, false},
		"attached, so no matter": {v1alpha1.BpfProgCondLoaded, []string{node}, []string{pod}, false},
	} {
		report := decoded(t, full("report", "uid", func(p *v1alpha1.BpfProgram) {
			p.Status.Links = nil
			for _, point := range c.attached {
				p.Status.Links = append(p.Status.Links, v1alpha1.BpfProgramLink{AttachPoint: point, State: v1alpha1.LinkAttached})
			}
			for _, point := range c.failed {
				p.Status.Links = append(p.Status.Links, v1alpha1.BpfProgramLink{AttachPoint: point, State: v1alpha1.LinkNotAttached})
			}
			p.Status.Conditions = []metav1.Condition{c.condition.Condition("no")}
		}))
		if got := report.State.Value().InPods; got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestDecode(t *testing.T) {
	loaded := State{Kind: "TcxProgram", Generation: 3, Condition: v1alpha1.BpfProgCondLoaded, Linked: true}
	failed := loaded
	failed.Condition, failed.Message, failed.Problem = v1alpha1.BpfProgCondNotLoaded, "no such interface", problem.NoSuchInterface
	for name, c := range map[string]struct {
		change  func(*v1alpha1.BpfProgram)
		owner   Owner
		node    Node
		state   State
		foreign bool
	}{
		"loaded": {nil, Owner{Kind: "TcxProgram", Name: "counter", UID: "u-counter"}, Node{"node-1", "node-1"}, loaded, false},
		"namespaced, not reported yet, of no owner": {
			func(p *v1alpha1.BpfProgram) {
				p.Namespace, p.OwnerReferences, p.Status, p.Labels = "apps", nil, v1alpha1.BpfProgramStatus{}, nil
			},
			Owner{Namespace: "apps"},
			Node{},
			State{},
			false,
		},
		"failed": {
			func(p *v1alpha1.BpfProgram) {
				p.Status.Conditions = []metav1.Condition{v1alpha1.BpfProgCondNotLoaded.Condition("no such interface")}
				p.Status.Problem = string(problem.NoSuchInterface)
			},
			Owner{Kind: "TcxProgram", Name: "counter", UID: "u-counter"},
			Node{"node-1", "node-1"},
			failed, false,
		},
		"edited": {
			func(p *v1alpha1.BpfProgram) {
				later := metav1.NewTime(p.CreationTimestamp.Add(time.Second))
				p.ManagedFields = append(p.ManagedFields, metav1.ManagedFieldsEntry{Manager: "kubectl-edit", Time: &later})
			},
			Owner{Kind: "TcxProgram", Name: "counter", UID: "u-counter"},
			Node{"node-1", "node-1"},
			loaded, true,
		},
		"edited, and put right by the agent": {
			func(p *v1alpha1.BpfProgram) {
				earlier := metav1.NewTime(p.CreationTimestamp.Add(-time.Second))
				p.ManagedFields = append(p.ManagedFields, metav1.ManagedFieldsEntry{Manager: "kubectl-edit", Time: &earlier})
			},
			Owner{Kind: "TcxProgram", Name: "counter", UID: "u-counter"},
			Node{"node-1", "node-1"},
			loaded, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := decoded(t, full("p", "u-p", c.change))
			if r.Name != "p" || r.UID != "u-p" || r.Foreign != c.foreign || (r.ProgramID != 12) != (c.state == State{}) {
				t.Errorf("name %q, uid %q, program %d, foreign %v", r.Name, r.UID, r.ProgramID, r.Foreign)
			}
			if r.Owner.Value() != c.owner || r.Node.Value() != c.node || r.State.Value() != c.state {
				t.Errorf("%+v on %+v: %+v", r.Owner.Value(), r.Node.Value(), r.State.Value())
			}
			if r.Kind().Namespaced != (c.owner.Namespace != "") {
				t.Errorf("it is a %s", r.Kind().Name)
			}
		})
	}
}

func TestPolicies(t *testing.T) {
	r := decoded(t, full("p", "u-p", func(p *v1alpha1.BpfProgram) {
		p.Status.Bytecode = &v1alpha1.BpfProgramBytecode{Image: "quay.io/x", Policies: []v1alpha1.BpfProgramPolicy{
			{Name: "a.b-c", Generation: 2, Verdict: v1alpha1.VerdictAllowed}, {Name: "d", Verdict: v1alpha1.VerdictDenied, Message: "unsigned"},
		}}
	}))
	want := map[string]v1alpha1.PolicyVerdict{"a.b-c": v1alpha1.VerdictAllowed, "d": v1alpha1.VerdictDenied}
	if got := maps.Collect(r.State.Value().Policies()); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestLongMessagesAreShortened(t *testing.T) {
	r := decoded(t, full("p", "u-p", func(p *v1alpha1.BpfProgram) {
		p.Status.Conditions = []metav1.Condition{v1alpha1.BpfProgCondNotLoaded.Condition("head " + strings.Repeat("x", 30_000) + " tail")}
	}))
	m := r.State.Value().Message
	if len(m) > maxMessage || !strings.HasPrefix(m, "head ") || !strings.HasSuffix(m, " tail") {
		t.Errorf("%d bytes: %q", len(m), m)
	}
}

// The first line has the cause. What follows can be a log of the kernel's verifier.
func TestFirstLineIsTheCause(t *testing.T) {
	cause := "the kernel's verifier refuses the program, when loading f (the previously loaded program 7 keeps running)"
	r := decoded(t, full("p", "u-p", func(p *v1alpha1.BpfProgram) {
		p.Status.Previous = true
		p.Status.Conditions = []metav1.Condition{v1alpha1.BpfProgCondNotLoaded.Condition(cause + strings.Repeat("\n1: (71) r1 = *(u8 *)(r1 +12)", 100))}
	}))
	if s := r.State.Value(); s.Message != "the kernel's verifier refuses the program, when loading f" || !s.Previous {
		t.Errorf("%+v", s)
	}
}

// A report that can't be decoded is Undecodable. A report without a name is an error.
func TestUndecodable(t *testing.T) {
	with := func(status string) []byte {
		return []byte(`{"apiVersion":"bpfman.io/v1alpha1","kind":"BpfProgram","metadata":{"name":"p","uid":"u","labels":{"kubernetes.io/hostname":"node-1","bpfman.io/ownerKind":"TcxProgram"},` +
			`"ownerReferences":[{"kind":"TcxProgram","name":"counter","uid":"u-counter","controller":true}]},"spec":7,"status":` + status + `}`)
	}
	for status, undecodable := range map[string]bool{
		`"text"`: true, `{"conditions":7}`: true, `{"ownergeneration":"x"}`: true, `{"programid":"x"}`: true, `{"bytecode":{"policies":[1]}}`: true,
		`{}`: false, `null`: false, `{"kernelid":"not read here"}`: false, `{"conditions":[]}`: false,
	} {
		r, _, err := decode(with(status))
		if err != nil {
			t.Errorf("%s: %v", status, err)
			continue
		}
		if got := r.State.Value().Undecodable; (got != "") != undecodable {
			t.Errorf("%s: undecodable %q", status, got)
		}
		if r.Name != "p" || r.Owner.Value().UID != "u-counter" || r.Node.Value().Label != "node-1" || r.State.Value().Kind != "TcxProgram" {
			t.Errorf("%s: the metadata is lost: %+v", status, r)
		}
	}
	if r, _, err := decode([]byte(`{"metadata":{"name":7}}`)); err == nil {
		t.Errorf("decoded as %+v", r)
	}
}

// A list from the API server, with its members in any order.
func TestDecodeList(t *testing.T) {
	items := string(encoded(t, full("a", "u-a", nil))) + "," + string(encoded(t, full("b", "u-b", nil)))
	for _, text := range []string{
		`{"kind":"BpfProgramList","apiVersion":"bpfman.io/v1alpha1","metadata":{"resourceVersion":"77","continue":"next"},"items":[` + items + `]}`,
		`{"items":[` + items + `],"metadata":{"continue":"next","resourceVersion":"77"}}`,
	} {
		l, err := liststream.DecodeList(strings.NewReader(text), decode)
		if err != nil {
			t.Fatal(err)
		}
		if l.ResourceVersion != "77" || l.Continue != "next" || len(l.Items) != 2 {
			t.Fatalf("%+v", l)
		}
		for i, want := range []types.UID{"u-a", "u-b"} {
			if r, ok := l.Items[i].(*Report); !ok || r.UID != want {
				t.Errorf("item %d is %+v", i, l.Items[i])
			}
		}
	}
	for _, text := range []string{`{"metadata":{"resourceVersion":"1"},"items":null}`, `{"metadata":{"resourceVersion":"1"},"items":[]}`} {
		if l, err := liststream.DecodeList(strings.NewReader(text), decode); err != nil || len(l.Items) > 0 || l.ResourceVersion != "1" {
			t.Errorf("%s: %+v, %v", text, l, err)
		}
	}
	whole := `{"metadata":{"resourceVersion":"77"},"items":[` + items + `]}`
	for _, part := range []string{"", "7", "[]", whole[:len(whole)-1], whole[:len(whole)-2], whole[:200], `{"items":{}}`, `{"items":[7]}`} {
		if l, err := liststream.DecodeList(strings.NewReader(part), decode); err == nil {
			t.Errorf("a list that ends early, or is none, was read: %.40q: %d items", part, len(l.Items))
		}
	}
}

func TestDecodeEvents(t *testing.T) {
	stream := fmt.Sprintf(`{"type":"ADDED","object":%[1]s}
{"type":"MODIFIED","object":%[1]s}
{"type":"DELETED","object":%[1]s}
{"type":"BOOKMARK","object":{"kind":"BpfProgram","metadata":{"resourceVersion":"99","annotations":{"k8s.io/initial-events-end":"true"}}}}
{"type":"ERROR","object":{"kind":"Status","status":"Failure","code":410,"reason":"Expired","message":"too old"}}
`, encoded(t, full("a", "u-a", nil)))
	e := liststream.DecodeEvents(io.NopCloser(strings.NewReader(stream)), decode)
	for _, want := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted} {
		kind, o, err := e.Decode()
		if err != nil || kind != want {
			t.Fatalf("%s: %s, %+v, %v", want, kind, o, err)
		}
		r, err := liststream.Record[*Report](o)
		m, ok := o.(metav1.Object)
		if err != nil || !ok || r.UID != "u-a" || m.GetResourceVersion() != "7" || m.GetName() != "a" || m.GetAnnotations() != nil {
			t.Fatalf("%s: %+v, %v", want, o, err)
		}
	}
	kind, o, err := e.Decode()
	if b, ok := o.(metav1.Object); err != nil || kind != watch.Bookmark || !ok || b.GetResourceVersion() != "99" || b.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
		t.Fatalf("bookmark: %s, %+v, %v", kind, o, err)
	}
	kind, o, err = e.Decode()
	if s, ok := o.(*metav1.Status); err != nil || kind != watch.Error || !ok || s.Reason != metav1.StatusReasonExpired {
		t.Fatalf("error: %s, %+v, %v", kind, o, err)
	}
	if _, _, err := e.Decode(); !errors.Is(err, io.EOF) {
		t.Errorf("the end: %v", err)
	}
	cut := liststream.DecodeEvents(io.NopCloser(strings.NewReader(stream[:100])), decode)
	if _, _, err := cut.Decode(); err != io.ErrUnexpectedEOF { //nolint:errorlint // watch.StreamWatcher compares it like this
		t.Errorf("a connection that ended: %v", err)
	}
}

// Decoding ends for any input.
func FuzzDecode(f *testing.F) {
	f.Add(encoded(f, full("p", "u-p", nil)))
	f.Add([]byte(`{"metadata":{"name":"p"},"status":{"conditions":[{"type":7}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, _, err := decode(data)
		if (r == nil) == (err == nil) {
			t.Errorf("%+v, %v", r, err)
		}
	})
}
