// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package view

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/inventory"
	"github.com/bpfman/bpfman-operator/cli/why"
)

var now = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

const inventoryA = `{"metadata":{"name":"a","resourceVersion":"7"},"status":{"kernelversion":"6.12","programcount":4,"bpfmancount":2,"conflictcount":1,
"programs":[
 {"id":1,"name":"count","type":"xdp","bpfman":true,"loadedat":"2026-11-24T11:30:00Z","owner":{"kind":"XdpProgram","name":"packets"}},
 {"id":2,"name":"xdp_dispatcher","type":"xdp","bpfman":true,"loadedat":"2026-11-24T11:30:00Z"},
 {"id":3,"name":"from_netdev","type":"sched_cls","loadedat":"2026-11-23T11:30:00Z","holders":[{"process":"cilium","pid":7,"namespace":"kube-system","pod":"cilium-x7","container":"agent"}]},
 {"id":4,"name":"sd_devices","type":"cgroup_device"}],
"maps":[{"id":9,"type":"hash"}],
"conflicts":[{"type":"ForeignXDP","message":"in the way","programid":3,"owner":{"kind":"XdpProgram","name":"packets"}}],
"conditions":[{"type":"Inspected","status":"False","reason":"x","message":"no /proc"}]}}`

func inventoryOf(t *testing.T, text string) *Inventory {
	t.Helper()
	r, _, err := DecodeInventory([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestDecodeInventory(t *testing.T) {
	r := inventoryOf(t, inventoryA)
	if r.Name != "a" || r.Version != "7" || r.Total != 4 || r.Bpfman != 2 || r.Problem != "no /proc" || len(r.Conflicts) != 1 {
		t.Errorf("%+v", r)
	}
	var found []string
	for _, p := range r.Programs {
		found = append(found, fmt.Sprint(p.ID, " ", p.Sort.Value().Owned()))
	}
	if want := []string{"1 XdpProgram packets", "2 bpfman", "3 kube-system/agent"}; !slices.Equal(found, want) {
		t.Errorf("programs %q, want %q", found, want)
	}
	other := inventoryOf(t, strings.ReplaceAll(inventoryA, "cilium-x7", "cilium-b2"))
	if r.Programs[2].Sort != other.Programs[2].Sort {
		t.Errorf("the same program of different pods: %+v, %+v", r.Programs[2].Sort.Value(), other.Programs[2].Sort.Value())
	}
}

// Nothing that an API server could send ends the plugin.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(inventoryA))
	f.Add([]byte(`{"metadata":{"name":"a"},"status":{"conditions":[{"type":"Ready","status":"True"}]}}`))
	f.Add([]byte(`{"metadata":{"name":"a"},"status":7}`))
	f.Fuzz(func(t *testing.T, object []byte) {
		if r, _, err := DecodeInventory(object); (r == nil) != (err != nil) {
			t.Errorf("inventory %v, %v", r, err)
		}
		if r, _, err := DecodeMachine(object); (r == nil) != (err != nil) {
			t.Errorf("machine %v, %v", r, err)
		}
		if r, _, err := DecodeEvent(object); (r == nil) != (err != nil) {
			t.Errorf("event %v, %v", r, err)
		}
		if r, _, err := DecodeUserObject(v1alpha1.UserKinds[0])(object); (r == nil) != (err != nil) {
			t.Errorf("object %v, %v", r, err)
		}
		if r, _, err := DecodePolicy("BytecodePolicy")(object); (r == nil) != (err != nil) {
			t.Errorf("policy %v, %v", r, err)
		}
	})
}

func TestDecodeMachine(t *testing.T) {
	for want, conditions := range map[string]string{
		"":                                `[{"type":"Ready","status":"True"}]`,
		"lost":                            `[{"type":"MemoryPressure","status":"False"},{"type":"Ready","status":"Unknown","reason":"Gone","message":"lost"}]`,
		"Gone":                            `[{"type":"Ready","status":"False","reason":"Gone"}]`,
		"the kubelet hasn't reported yet": `[]`,
	} {
		m, _, err := DecodeMachine([]byte(`{"metadata":{"name":"a"},"status":{"conditions":` + conditions + `}}`))
		if err != nil || m.Name != "a" || m.NotReady != want {
			t.Errorf("%s: %+v, %v, want %q", conditions, m, err, want)
		}
	}
}

// An object of an unknown schema is shown as failed. It doesn't hide others.
func TestUndecodableObject(t *testing.T) {
	d, m, err := DecodeUserObject(v1alpha1.UserKinds[0])([]byte(`{"metadata":{"name":"odd"},"spec":{"programs":"none"}}`))
	if err != nil || m.Name != "odd" || d.User != nil || d.Problem == "" {
		t.Fatalf("%+v, %v", d, err)
	}
	f := Facts{Objects: map[v1alpha1.BpfNodeOwner]*Declared{d.Owner: d}}
	if got := f.Of(Filter{}, now).Objects; len(got) != 1 || got[0].State != why.Failed || !strings.Contains(got[0].Message, "odd") {
		t.Errorf("%+v", got)
	}
}

func facts(t *testing.T) *Facts {
	t.Helper()
	packets := v1alpha1.BpfNodeOwner{Kind: "XdpProgram", Name: "packets"}
	user := &v1alpha1.XdpProgram{ObjectMeta: metav1.ObjectMeta{Name: "packets"}}
	user.Spec.ByteCode.Image = &v1alpha1.BytecodeImage{Url: "registry.example.com/packets"}
	user.Status.Conditions = []metav1.Condition{{Type: "ReconcileSuccess", Reason: "ReconcileSuccess"}}
	user.Status.Nodes = &v1alpha1.NodeCounts{Selected: 3, Attached: 2, Failed: 1}
	b := strings.NewReplacer(`"name":"a"`, `"name":"b"`, `"conflicts":[`, `"other":[`, `"status":"False"`, `"status":"True"`, `"conflictcount":1`, `"conflictcount":0`).Replace(inventoryA)
	return &Facts{
		Machines: map[string]*Machine{"a": {Name: "a"}, "b": {Name: "b"}, "c": {Name: "c", NotReady: "lost"}, "d": {Name: "d"}},
		Inventories: map[string]*Inventory{
			"a": inventoryOf(t, inventoryA), "b": inventoryOf(t, b), "e": inventoryOf(t, strings.ReplaceAll(b, `"name":"b"`, `"name":"e"`)),
		},
		Objects: map[v1alpha1.BpfNodeOwner]*Declared{packets: {Owner: packets, User: user}},
		Failing: map[string][]v1alpha1.BpfNodeOwner{"e": {packets}},
		Events: []*Event{
			{Owner: packets, Reason: "Old", At: now.Add(-2 * time.Hour)}, {Owner: packets, Reason: "New", At: now.Add(-time.Minute), Warning: true},
		},
	}
}

func TestCluster(t *testing.T) {
	v := facts(t).Of(Filter{}, now)
	health := map[string]Health{}
	for _, c := range v.Nodes {
		health[c.Name] = c.Health
	}
	if want := map[string]Health{"a": Conflict, "b": Healthy, "c": NotReady, "d": Unknown, "e": Failed}; !reflect.DeepEqual(health, want) {
		t.Errorf("health %v, want %v", health, want)
	}
	if v.Totals.Programs != 12 || v.Totals.Bpfman != 6 || v.Totals.Conflicts != 1 || v.Totals.Nodes[Healthy] != 1 {
		t.Errorf("totals %+v", v.Totals)
	}
	var rows []string
	for _, r := range v.Programs {
		rows = append(rows, fmt.Sprint(r.Name, " ", r.Owned, " ", r.Nodes, " ", r.Count, " ", r.Node))
	}
	if want := []string{"count XdpProgram packets 3 3 a", "from_netdev kube-system/agent 3 3 a", "xdp_dispatcher bpfman 3 3 a"}; !slices.Equal(rows, want) {
		t.Errorf("rows %q, want %q", rows, want)
	}
	if len(v.Objects) != 1 || v.Objects[0].Image != "registry.example.com/packets" || len(v.Objects[0].Conflicts) != 1 || v.Objects[0].Counts.Failed != 1 {
		t.Errorf("objects %+v", v.Objects)
	}
	var changes []string
	for _, c := range v.Changes {
		changes = append(changes, c.What+" "+c.Message)
	}
	if want := []string{"New ", "Loaded xdp program count on 3 nodes"}; !slices.Equal(changes, want) {
		t.Errorf("changes %q, want %q", changes, want)
	}
	if want := (Choices{[]string{"sched_cls", "xdp"}, []string{"registry.example.com/packets"}, []string{}, []string{"XdpProgram packets", "bpfman", "kube-system/agent"}}); !reflect.DeepEqual(v.Choices, want) {
		t.Errorf("choices %+v, want %+v", v.Choices, want)
	}
}

func TestFilter(t *testing.T) {
	f := facts(t)
	for name, c := range map[string]struct {
		filter Filter
		want   []string
	}{
		"by text":        {Filter{Text: "NETDEV"}, []string{"from_netdev"}},
		"by type":        {Filter{Type: "xdp"}, []string{"count", "xdp_dispatcher"}},
		"by image":       {Filter{Image: "registry.example.com/packets"}, []string{"count"}},
		"by owner":       {Filter{Owner: "bpfman"}, []string{"xdp_dispatcher"}},
		"by namespace":   {Filter{Namespace: "acme"}, nil},
		"by two of them": {Filter{Type: "xdp", Owner: "XdpProgram packets"}, []string{"count"}},
	} {
		v := f.Of(c.filter, now)
		var found []string
		for _, r := range v.Programs {
			found = append(found, r.Name)
		}
		if !slices.Equal(found, c.want) {
			t.Errorf("%s: %q, want %q", name, found, c.want)
		}
		if b := v.Nodes[1]; (b.Health == Unmatched) != (len(c.want) == 0) || b.Matched != len(c.want) {
			t.Errorf("%s: node %+v", name, b)
		}
	}
}

// An object that isn't loaded anywhere is of each type, so that a filter by type doesn't hide that it fails.
func TestFilterKeepsWhatFails(t *testing.T) {
	f := facts(t)
	broken := v1alpha1.BpfNodeOwner{Kind: "XdpProgram", Name: "broken"}
	f.Objects[broken] = &Declared{Owner: broken, User: &v1alpha1.XdpProgram{ObjectMeta: metav1.ObjectMeta{Name: "broken"}}}
	for want, filter := range map[string]Filter{"broken packets": {Type: "xdp"}, "broken": {Type: "sched_cls"}, "": {Type: "xdp", Text: "netdev"}} {
		var found []string
		for _, o := range f.Of(filter, now).Objects {
			found = append(found, o.Name)
		}
		slices.Sort(found)
		if got := strings.Join(found, " "); got != want {
			t.Errorf("%+v: %q, want %q", filter, got, want)
		}
	}
}

// What happened to many objects, as after a reboot, is one change.
func TestMerge(t *testing.T) {
	change := func(what, kind, name string) Change {
		return Change{What: what, Owner: &v1alpha1.BpfNodeOwner{Kind: kind, Name: name}}
	}
	var all []Change
	for i := range 6 {
		all = append(all, change("Reloaded", "XdpProgram", fmt.Sprint(i)))
	}
	all = append(all, change("Reloaded", "TcProgram", "x"), change("Loaded", "TcProgram", "x"), Change{What: "Loaded"}, Change{What: "Loaded"})
	got := merge(all)
	if len(got) != 5 || got[0].More != 5 || got[0].Owner.Name != "0" || got[1].More != 0 {
		t.Errorf("%+v", got)
	}
	if merge(nil) == nil {
		t.Error("nil, which JSON encodes as null")
	}
}

func TestNode(t *testing.T) {
	owner := &v1alpha1.BpfNodeOwner{Kind: "TcxProgram", Name: "count"}
	node := &v1alpha1.BpfNode{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: v1alpha1.BpfNodeStatus{
		Programs: []v1alpha1.BpfNodeProgram{
			{ID: 1, Name: "theirs", Type: "sched_cls", AttachPoints: []v1alpha1.BpfNodeAttachPoint{{Type: "tcx/ingress", Interface: "eth0", Position: 1}}},
			{ID: 2, Name: "ours", Type: "sched_cls", Bpfman: true, Owner: owner, MapIDs: []uint32{5}, AttachPoints: []v1alpha1.BpfNodeAttachPoint{
				{Type: "tcx/ingress", Interface: "eth0", Position: 2},
				{Type: "tcx/egress", Interface: "eth0", Position: 1},
				{Type: "tcx/ingress", Interface: "eth0", NetNs: "12", Namespace: "acme", Pod: "web", Position: 1},
			}},
			{ID: 3, Name: "trace", Type: "tracepoint", AttachPoints: []v1alpha1.BpfNodeAttachPoint{{Type: "tracepoint", Target: "syscalls/sys_enter_kill"}}},
			{ID: 4, Name: "probe", Type: "kprobe"},
			{ID: 5, Name: "sd_devices", Type: "cgroup_device", AttachPoints: []v1alpha1.BpfNodeAttachPoint{{Type: "cgroup_device", Target: "/x"}}},
		},
		Maps:      []v1alpha1.BpfNodeMap{{ID: 5, Type: "hash"}, {ID: 6, Type: "hash", Pins: []string{"/var/lib/kubelet/pods/u1/volumes/x/y"}}, {ID: 7, Type: "hash"}},
		Conflicts: []v1alpha1.BpfNodeConflict{{Type: "EarlierInChain", Message: "it decides", ProgramID: 1, Owner: owner}},
	}}
	pods := []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "web", UID: "u1"}}}
	asked := func(v1alpha1.BpfNodeOwner, string) inventory.Settings { return inventory.Settings{} }
	placesOf := func(v *Node) (places []string) {
		for _, p := range v.Places {
			for _, h := range p.Hooks {
				line := p.Group + " " + p.Name + " " + h.Type
				for _, program := range h.Programs {
					line += fmt.Sprint(" ", program.ID)
					if program.Conflict != "" {
						line += "!"
					}
				}
				places = append(places, line)
			}
		}
		return places
	}
	v := NodeOf(Cell{Name: "a"}, node, pods, nil, asked, Problems{})
	places := placesOf(v)
	want := []string{
		"Interfaces eth0 tcx/ingress 1! 2", "Interfaces eth0 tcx/egress 2", "Pods acme/web:eth0 tcx/ingress 2",
		"Tracepoints syscalls/sys_enter_kill tracepoint 3",
	}
	if !slices.Equal(places, want) {
		t.Errorf("places %q, want %q", places, want)
	}
	if len(v.Unattached) != 1 || v.Unattached[0].ID != 4 {
		t.Errorf("unattached %+v", v.Unattached)
	}
	if v.Maps[0].Unused || v.Maps[1].Unused || !v.Maps[2].Unused {
		t.Errorf("maps %+v", v.Maps)
	}
	v = NodeOf(Cell{Name: "a"}, node, pods, &pods[0], asked, Problems{})
	want = append([]string{want[2]}, want[0], want[1], want[3])
	if places := placesOf(v); !slices.Equal(places, want) || v.Places[0].Pod != "acme/web" || len(v.Unattached) != 0 || len(v.Maps) != 1 || v.Maps[0].ID != 6 {
		t.Errorf("of the pod: places %q, want %q; unattached %+v, maps %+v", places, want, v.Unattached, v.Maps)
	}
	stranger := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "web"}}
	if places := placesOf(NodeOf(Cell{Name: "a"}, node, pods, &stranger, asked, Problems{})); !slices.Equal(places, want[1:]) {
		t.Errorf("of another pod: places %q, want %q", places, want[1:])
	}
}

func TestObject(t *testing.T) {
	user := &v1alpha1.XdpProgram{ObjectMeta: metav1.ObjectMeta{Name: "packets"}}
	report := func(node, digest string) v1alpha1.ProgramObject {
		return &v1alpha1.BpfProgram{
			Spec:   v1alpha1.BpfProgramSpec{Maps: map[string]string{"stats": "/run/stats"}},
			Status: v1alpha1.BpfProgramStatus{Node: node, Function: "count", ProgramID: 7, MapIDs: []uint32{4, 5}, Bytecode: &v1alpha1.BpfProgramBytecode{Image: "i", Digest: digest}},
		}
	}
	reports := []v1alpha1.ProgramObject{report("a", "1"), report("a", "1"), report("b", "1"), report("c", "2")}
	page := why.Page{}
	for i := range maxDetailed + 5 {
		page.Nodes = append(page.Nodes, why.Node{Name: fmt.Sprint(i), State: why.Attached, Programs: []why.Program{{ID: 7}}})
	}
	mine := &Event{Owner: v1alpha1.BpfNodeOwner{Kind: "XdpProgram", Name: "packets"}, Reason: "Loaded", Message: "on node a", At: time.Unix(200, 0)}
	revisions := []Revision{{Number: 1, Created: metav1.Unix(100, 0), Since: []int64{1}}}
	nodes := map[string]*v1alpha1.BpfNode{"b": {Status: v1alpha1.BpfNodeStatus{Maps: []v1alpha1.BpfNodeMap{{ID: 4, Name: "stats", Pins: []string{"/run/stats"}}, {ID: 5, Name: ".bss"}}}}}
	v := ObjectOf(page, why.Facts{Kind: "XdpProgram", Object: user, Reports: reports}, nodes, revisions, []*Event{mine, {Owner: v1alpha1.BpfNodeOwner{Kind: "TcProgram", Name: "packets"}}}, Problems{})
	if len(v.Nodes) != maxDetailed+5 || len(v.Page.Nodes) != maxDetailed || len(v.Programs) != maxDetailed+5 {
		t.Errorf("%d nodes, %d with details, %d with programs", len(v.Nodes), len(v.Page.Nodes), len(v.Programs))
	}
	if len(v.Bytecode) != 2 || v.Bytecode[0].Nodes != 2 || v.Bytecode[1].Nodes != 1 {
		t.Errorf("bytecode %+v", v.Bytecode)
	}
	if len(v.Maps) != 4 || v.Maps[1].Name != ".bss" || v.Maps[1].Kernel.ID != 5 || len(v.Timeline) != 2 || v.Timeline[0].What != "Loaded: on node a" || v.Timeline[1].Revision != 1 || v.Conditions == nil || v.Revisions == nil {
		t.Errorf("%+v", v)
	}
}
