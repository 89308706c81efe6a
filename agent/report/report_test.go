// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package report

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/bpfman/bpfman-operator/agent/bytecode"
	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/plan"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/problem"
)

const uid = "11111111-2222-3333-4444-555555555555"

// ownerOf returns the owner for a user object, like the agent.
func ownerOf(t *testing.T, kind string, o v1alpha1.UserObject) program.Owner {
	t.Helper()
	path := "/x.o"
	o.SetAppCommon(v1alpha1.BpfAppCommon{ByteCode: v1alpha1.BytecodeSelector{Path: &path}})
	o.SetUID(uid)
	o.SetGeneration(3)
	if o.GetName() == "" {
		o.SetName("counter")
	}
	owner := program.OwnerOf(kind, o)
	return owner
}

// tracepoint returns an owner of one program with these tracepoints.
func tracepoint(t *testing.T, names ...string) program.Owner {
	t.Helper()
	o := &v1alpha1.TracepointProgram{}
	o.Spec.BpfFunctionName, o.Spec.Names = "f", names
	return ownerOf(t, "TracepointProgram", o)
}

// uprobe returns an owner of one program in the containers of its namespace.
func uprobe(t *testing.T) program.Owner {
	t.Helper()
	o := &v1alpha1.UprobeNsProgram{}
	o.Namespace = "tenant"
	o.Spec.BpfFunctionName, o.Spec.FunctionName, o.Spec.Target = "f", "malloc", "libc"
	return ownerOf(t, "UprobeNsProgram", o)
}

// application returns an owner of tracepoint programs with these functions.
func application(t *testing.T, functions ...string) program.Owner {
	t.Helper()
	o := &v1alpha1.BpfApplication{}
	for _, f := range functions {
		o.Spec.Programs = append(o.Spec.Programs, v1alpha1.BpfApplicationProgram{
			Type: v1alpha1.ProgTypeTracepoint,
			Tracepoint: &v1alpha1.TracepointProgramInfo{
				BpfProgramCommon: v1alpha1.BpfProgramCommon{BpfFunctionName: f}, Names: []string{"a/" + f},
			},
		})
	}
	return ownerOf(t, "BpfApplication", o)
}

// loaded returns the daemon's programs for a plan, with IDs starting at 9, and the first links of each
// program's attach points.
func loaded(p plan.Plan, links int) []daemon.Program {
	var out []daemon.Program
	for _, load := range p.Loads {
		for _, wanted := range load.Programs {
			l := daemon.Program{
				ID: 9 + uint32(len(out)), Function: wanted.LoadInfo().GetName(), OwnerUID: uid, LoadID: load.ID, Tag: "0123456789abcdef",
				LoadedAt: "2026-01-01T00:00:00+0000", MapIDs: []uint32{7}, Maps: map[string]string{"counter": "/run/bpfman/fs/maps/9/counter"},
				Links: map[uint32]daemon.Link{},
			}
			for n, point := range wanted.Points[:min(links, len(wanted.Points))] {
				l.Links[100+uint32(n)] = daemon.Link{Point: point.Name, Digest: point.Digest}
			}
			out = append(out, l)
		}
	}
	return out
}

// text returns the parts of an object that users read: its condition and links.
func text(o v1alpha1.ProgramObject) string {
	lines := make([]string, 0, 4)
	for _, c := range o.GetStatus().Conditions[:1] {
		lines = append(lines, c.Type+"/"+c.Reason+": "+c.Message)
	}
	for _, l := range o.GetStatus().Links {
		line := string(l.State) + " " + l.AttachPoint
		if l.Error != "" {
			line += ": " + l.Error
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// The conditions and links of a program in each state.
func TestConditions(t *testing.T) {
	points := tracepoint(t, "a/x", "b/y")
	want := plan.Want(points, program.Node{}, nil)
	edited := tracepoint(t, "a/x", "b/y")
	edited.GlobalData = map[string][]byte{"sampling": {1}}
	reload := plan.Want(edited, program.Node{}, nil)
	many := tracepoint(t, "a/1", "a/2", "a/3", "a/4", "a/5")
	blocked := plan.Plan{UID: uid, Blocked: []plan.Blocked{{
		Member: points.Members[0], Condition: v1alpha1.BpfProgCondMapOwnerNotFound, Err: problem.Errorf(problem.NoSuchMapOwner, "no program on this node matches mapownerselector app=x"),
	}}}
	waiting := blocked
	waiting.Blocked = []plan.Blocked{{Member: points.Members[0], Condition: v1alpha1.BpfProgCondMapOwnerNotLoaded, Err: errors.New("map owner x is not loaded on this node")}}
	nameless := ownerOf(t, "TracepointProgram", &v1alpha1.TracepointProgram{})
	both := tracepoint(t, "a/x")
	both.Bytecode.Image = &v1alpha1.BytecodeImage{Url: "quay.io/a/b"}
	refusal := errors.New("load f from file /x.o: an error of the daemon's")
	removal := errors.New("detach link 103: an error of the daemon's")

	for name, c := range map[string]struct {
		owner   program.Owner
		plan    plan.Plan
		actual  []daemon.Program
		outcome Outcome
		want    string
	}{
		"attached": {
			points, want, loaded(want, 2),
			Outcome{},
			"Loaded/bpfmanLoaded: Successfully loaded bpfProgram\nAttached a/x\nAttached b/y",
		},
		"not loaded": {
			points, want, nil,
			Outcome{Loads: map[int]error{0: refusal}},
			"NotLoaded/bpfmanNotLoaded: load f from file /x.o: an error of the daemon's",
		},
		"unloaded by others": {
			points, want, nil,
			Outcome{},
			"NotLoaded/bpfmanNotLoaded: the daemon does not have the program anymore, and the agent loads it again",
		},
		"no bytecode": {
			points, want, nil,
			Outcome{Loads: map[int]error{0: fmt.Errorf("wrapped: %w", &BytecodeError{Err: errors.New("get pull Secret a/b: not found")})}},
			"BytecodeSelectorError/bytecodeSelectorError: wrapped: get pull Secret a/b: not found",
		},
		"the image is being read": {
			points, want, nil,
			Outcome{Loads: map[int]error{0: &BytecodeError{Err: &bytecode.PendingError{Reference: "quay.io/a/b"}}}},
			"None/None: image quay.io/a/b: waiting for its registry",
		},
		"the next image is being read": {
			edited, reload, loaded(want, 1),
			Outcome{Loads: map[int]error{0: &BytecodeError{Err: &bytecode.PendingError{Reference: "quay.io/a/b"}}}},
			"None/None: image quay.io/a/b: waiting for its registry (the previously loaded program 9 keeps running)\nAttached a/x",
		},
		"one attach point fails": {
			points, want, loaded(want, 1), attachErrors(want, "b/y"),
			"NotLoaded/bpfmanNotLoaded: attach to b/y: an error of the daemon's\nAttached a/x\nNotAttached b/y: attach to b/y: an error of the daemon's",
		},
		"many attach points fail": {
			many, plan.Want(many, program.Node{}, nil), loaded(plan.Want(many, program.Node{}, nil), 0),
			attachErrors(plan.Want(many, program.Node{}, nil), "a/1", "a/2", "a/3", "a/4", "a/5"),
			"NotLoaded/bpfmanNotLoaded: attach to a/1: an error of the daemon's; attach to a/2: an error of the daemon's; attach to a/3: an error of the daemon's; and 2 more\n" +
				"NotAttached a/1: attach to a/1: an error of the daemon's\nNotAttached a/2: attach to a/2: an error of the daemon's\nNotAttached a/3: attach to a/3: an error of the daemon's\n" +
				"NotAttached a/4: attach to a/4: an error of the daemon's\nNotAttached a/5: attach to a/5: an error of the daemon's",
		},
		"a link stays that should go": {
			points, want, with(loaded(want, 2), 103, daemon.Link{Point: "c/z", Digest: "d"}),
			Outcome{Removals: []error{removal}},
			"NotUnLoaded/bpfmanNotUnloaded: detach link 103: an error of the daemon's\nAttached a/x\nAttached b/y\nAttached c/z",
		},
		"a link stays in the way of another": {
			points, want, with(loaded(want, 1), 103, daemon.Link{Point: "b/y", Digest: "old"}), attachErrors(want, "b/y"),
			"NotLoaded/bpfmanNotLoaded: attach to b/y: an error of the daemon's\nAttached a/x\nNotAttached b/y: attach to b/y: an error of the daemon's",
		},
		"a link that nobody knows isn't told of": {
			points, want, with(loaded(want, 2), 103, daemon.Link{}),
			Outcome{},
			"Loaded/bpfmanLoaded: Successfully loaded bpfProgram\nAttached a/x\nAttached b/y",
		},
		"a predecessor runs": {
			edited, reload, loaded(want, 2),
			Outcome{Loads: map[int]error{0: refusal}},
			"NotLoaded/bpfmanNotLoaded: load f from file /x.o: an error of the daemon's (the previously loaded program 9 keeps running)\nAttached a/x\nAttached b/y",
		},
		"another owner's program is no predecessor": {
			edited, reload, of("another uid", loaded(want, 2)),
			Outcome{Loads: map[int]error{0: refusal}},
			"NotLoaded/bpfmanNotLoaded: load f from file /x.o: an error of the daemon's",
		},
		"blocked": {
			points, blocked, nil,
			Outcome{},
			"MapOwnerNotFound/mapOwnerNotFound: no program on this node matches mapownerselector app=x",
		},
		"blocked, loaded before": {
			points, waiting, loaded(want, 2),
			Outcome{},
			"MapOwnerNotLoaded/mapOwnerNotLoaded: map owner x is not loaded on this node (the previously loaded program 9 keeps running)\nAttached a/x\nAttached b/y",
		},
		"incomplete, loaded before": {
			nameless, plan.Want(nameless, program.Node{}, nil), loaded(want, 2),
			Outcome{},
			"NotLoaded/bpfmanNotLoaded: bpffunctionname is empty (the previously loaded program 9 keeps running)\nAttached a/x\nAttached b/y",
		},
		"a choice": {
			both, plan.Want(both, program.Node{}, nil), loaded(plan.Want(both, program.Node{}, nil), 1),
			Outcome{},
			"Loaded/bpfmanLoaded: Successfully loaded bpfProgram; bytecode has both an image and a path: the image is used\nAttached a/x",
		},
		"a note": {
			points, noted(want, "it runs first"), loaded(want, 2),
			Outcome{},
			"Loaded/bpfmanLoaded: Successfully loaded bpfProgram; it runs first\nAttached a/x\nAttached b/y",
		},
		"variables of its own": {
			points, want, unshared(loaded(want, 2), "hits (opened, closed)"),
			Outcome{},
			"Loaded/bpfmanLoaded: Successfully loaded bpfProgram; the node's daemon gives each function its own copy of the global variables that several use, " +
				"so none sees what another one writes: hits (opened, closed)\nAttached a/x\nAttached b/y",
		},
		"no container": {
			uprobe(t), plan.Want(uprobe(t), program.Node{}, nil), loaded(plan.Want(uprobe(t), program.Node{}, nil), 0),
			Outcome{},
			"NoContainersOnNode/noContainersOnNode: There are no containers on the node that match the container selector",
		},
		"no telling of containers": {
			uprobe(t), plan.Want(uprobe(t), program.Node{ContainersErr: errors.New("list containers: no runtime")}, nil), loaded(plan.Want(uprobe(t), program.Node{}, nil), 0),
			Outcome{},
			"NotLoaded/bpfmanNotLoaded: list containers: no runtime",
		},
	} {
		t.Run(name, func(t *testing.T) {
			objects := Programs(c.owner, "node", c.plan, c.actual, c.outcome)
			if len(objects) != 1 {
				t.Fatalf("%d objects", len(objects))
			}
			if got := text(objects[0]); got != c.want {
				t.Errorf("got\n%s\n\nwant\n%s", got, c.want)
			}
			conditions := objects[0].GetStatus().Conditions
			first := v1alpha1.BpfProgramConditionType(conditions[0].Type)
			ready := map[bool]metav1.ConditionStatus{true: metav1.ConditionFalse, false: metav1.ConditionTrue}[first.Failed() || first == v1alpha1.BpfProgCondNone]
			if conditions[0].Status != metav1.ConditionTrue || conditions[1].Type != "Ready" || conditions[1].Status != ready {
				t.Errorf("conditions %+v", conditions)
			}
			for _, c := range conditions {
				if c.ObservedGeneration != 3 {
					t.Errorf("condition %+v", c)
				}
			}
		})
	}
}

func TestStateOf(t *testing.T) {
	answered, silent := &daemon.Error{Op: "load f", Cause: status.Error(codes.Aborted, "no")}, &daemon.Error{Op: "load f", Cause: status.Error(codes.Unavailable, "no socket")}
	for name, c := range map[string]struct {
		errs []error
		want v1alpha1.State
	}{
		"the daemon refuses":                {[]error{answered}, v1alpha1.Stalled},
		"the daemon can't be reached":       {[]error{silent}, v1alpha1.Reconciling},
		"one of several stays":              {[]error{silent, answered}, v1alpha1.Stalled},
		"no such interface":                 {[]error{fmt.Errorf("attach to eth7: %w", &program.AbsentError{Err: errors.New("the node has no interface eth7")})}, v1alpha1.Reconciling},
		"a policy denies":                   {[]error{&PolicyError{Err: errors.New("no"), Final: true}}, v1alpha1.Stalled},
		"it isn't known if a policy denies": {[]error{&PolicyError{Err: errors.New("who knows")}}, v1alpha1.Reconciling},
		"the registry doesn't answer":       {[]error{&BytecodeError{Err: errors.New("registry quay.io doesn't answer in time")}}, v1alpha1.Reconciling},
		"the image can't be used":           {[]error{&BytecodeError{Err: errors.New("it isn't an ELF file"), Final: true}}, v1alpha1.Stalled},
		"the image lacks a function":        {[]error{errors.New("it has no function f")}, v1alpha1.Stalled},
		"the object has an invalid pattern": {[]error{errors.New("error parsing regexp")}, v1alpha1.Stalled},
	} {
		t.Run(name, func(t *testing.T) {
			if got := stateOf(c.errs...); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// Reports of programs that share a function have the same program ID, and each has its own links.
func TestSharedFunction(t *testing.T) {
	o := &v1alpha1.BpfApplication{}
	for _, names := range [][]string{{"a/x", "a/y"}, {"a/y", "b/z"}} {
		o.Spec.Programs = append(o.Spec.Programs, v1alpha1.BpfApplicationProgram{
			Type: v1alpha1.ProgTypeTracepoint,
			Tracepoint: &v1alpha1.TracepointProgramInfo{
				BpfProgramCommon: v1alpha1.BpfProgramCommon{BpfFunctionName: "f"}, Names: names,
			},
		})
	}
	owner := ownerOf(t, "ClusterBpfApplication", o)
	want := plan.Want(owner, program.Node{}, nil)
	actual := loaded(want, 2)[:1]
	actual[0].Links[110] = daemon.Link{Point: "old/one", Digest: "old"}
	failed := plan.LinkOf(want.Loads[0].Programs[1].Points[1])
	outcome := Outcome{Attaches: map[Attach]error{{Load: 0, Function: "f", Link: failed}: errors.New("an error of the daemon's")}}

	objects := Programs(owner, "node", want, actual, outcome)
	if len(objects) != 2 {
		t.Fatalf("%d objects", len(objects))
	}
	for n, want := range []string{
		"Loaded/bpfmanLoaded: Successfully loaded bpfProgram\nAttached a/x\nAttached a/y\nAttached old/one",
		"NotLoaded/bpfmanNotLoaded: an error of the daemon's\nAttached a/y\nNotAttached b/z: an error of the daemon's",
	} {
		if got := text(objects[n]); got != want {
			t.Errorf("object %d: got\n%s\n\nwant\n%s", n, got, want)
		}
		if id := objects[n].GetStatus().ProgramID; id != 9 {
			t.Errorf("object %d: program %d", n, id)
		}
		// Attach points that are wanted have fields, whether the program is attached there or not.
		for _, l := range objects[n].GetStatus().Links {
			if wanted := l.AttachPoint != "old/one"; (l.Hook != nil) != wanted || wanted && l.Hook.Tracepoint != l.AttachPoint {
				t.Errorf("object %d: the hook of %s is %+v", n, l.AttachPoint, l.Hook)
			}
		}
	}
}

// Only the reports of applications with States have what States need.
func TestFieldsForStates(t *testing.T) {
	for kind, wanted := range map[string]bool{"ClusterBpfApplication": true, "BpfApplication": false, "BpfNsApplication": false} {
		owner := application(t, "f", "g")
		owner.Kind = kind
		p := plan.Want(owner, program.Node{}, nil)
		actual := loaded(p, 1)
		of(uid, actual[1:])
		for _, o := range Programs(owner, "node", p, actual, Outcome{}) {
			status := o.GetStatus()
			if (status.ProgramType == "tracepoint") != wanted || status.Previous && !wanted || len(status.Links) != 1 || status.Links[0].Hook != nil && !wanted {
				t.Errorf("%s: %+v", kind, status)
			}
		}
	}
}

func attachErrors(p plan.Plan, points ...string) Outcome {
	o := Outcome{Attaches: map[Attach]error{}}
	for _, point := range points {
		wanted := p.Loads[0].Programs[0]
		n := slices.IndexFunc(wanted.Points, func(a program.AttachPoint) bool { return a.Name == point })
		key := Attach{Load: 0, Function: wanted.Function(), Link: plan.LinkOf(wanted.Points[n])}
		o.Attaches[key] = fmt.Errorf("attach to %s: an error of the daemon's", point)
	}
	return o
}

func with(programs []daemon.Program, id uint32, link daemon.Link) []daemon.Program {
	programs[0].Links[id] = link
	return programs
}

func of(uid string, programs []daemon.Program) []daemon.Program {
	for n := range programs {
		programs[n].OwnerUID = uid
	}
	return programs
}

// The fields that the CSI plugin, the operator, and scripts read.
func TestObject(t *testing.T) {
	owner := application(t, "f", "g")
	want := plan.Want(owner, program.Node{}, nil)
	actual := loaded(want, 1)
	actual[1].MapOwnerID, actual[1].MapUsedBy = new(uint32(9)), []string{"10", "11"}
	objects := Programs(owner, "node", want, actual, Outcome{})
	if len(objects) != 2 {
		t.Fatalf("%d objects", len(objects))
	}
	o, ok := objects[1].(*v1alpha1.BpfProgram)
	if !ok {
		t.Fatalf("a %T", objects[1])
	}
	expected := &v1alpha1.BpfProgram{ObjectMeta: metav1.ObjectMeta{
		Name: Name(owner, "tracepoint-g", "node"),
		Labels: map[string]string{
			"bpfman.io/ownedByProgram": "counter", "bpfman.io/appProgramId": "tracepoint-g",
			"kubernetes.io/hostname": "node", "bpfman.io/ownerKind": "BpfApplication",
		},
		Annotations:     map[string]string{"bpfman.io/ProgramId": "10"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "bpfman.io/v1alpha1", Kind: "BpfApplication", Name: "counter", UID: uid, Controller: new(true)}},
	}}
	expected.Spec = v1alpha1.BpfProgramSpec{Type: "application", Maps: map[string]string{"counter": "/run/bpfman/fs/maps/9/counter"}}
	expected.Status = v1alpha1.BpfProgramStatus{
		Conditions: o.Status.Conditions, Problem: string(problem.DaemonBusy), Node: "node", OwnerGeneration: 3, ProgramID: 10, Function: "g", Previous: true, Tag: "0123456789abcdef",
		LoadedAt: "2026-01-01T00:00:00+0000", MapIDs: []uint32{7}, MapOwnerID: new(uint32(9)), MapUsedBy: []string{"10", "11"},
		Bytecode: &v1alpha1.BpfProgramBytecode{Image: "file:/x.o"},
		Links:    []v1alpha1.BpfProgramLink{{AttachPoint: "a/g", Digest: want.Loads[0].Programs[1].Points[0].Digest, LinkID: 100, State: v1alpha1.LinkAttached}},
	}
	if diff := cmp.Diff(expected, o); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}

	namespaced := Programs(uprobe(t), "node", plan.Want(uprobe(t), program.Node{}, nil), nil, Outcome{})[0]
	if _, ok := namespaced.(*v1alpha1.BpfNsProgram); !ok || namespaced.GetNamespace() != "tenant" || namespaced.GetSpec().Type != "uprobe" {
		t.Errorf("a %T in namespace %q of type %q", namespaced, namespaced.GetNamespace(), namespaced.GetSpec().Type)
	}
	if id, there := namespaced.GetLabels()[v1alpha1.LabelAppProgramID]; !there || id != "" {
		t.Errorf("the member's label of a program of its own: %q, %v", id, there)
	}
}

// Names and labels are valid for any names of the owner, its functions, and the node. Names of different
// programs are different.
func TestNames(t *testing.T) {
	long := strings.Repeat("a", 253)
	dotted := strings.Repeat("a", 243) + ".b" // is cut after the dot, which must be followed by a letter or digit
	seen := map[string]string{}
	for _, kind := range []string{"TracepointProgram", "KprobeProgram"} {
		for _, namespace := range []string{"", "tenant", "tenant2"} {
			for _, name := range []string{"a", "a.b-c", long, long[:252] + "b", dotted} {
				for _, uid := range []types.UID{uid, "another"} {
					for _, member := range []string{"", "tracepoint-f", "tracepoint-f-2", "uprobe-_ZN3std2io5WriteE-f"} {
						for _, node := range []string{"node", "node.example.com", long} {
							owner := program.Owner{Key: program.Key{Kind: kind, Namespace: namespace, Name: name}, UID: uid}
							got := Name(owner, member, node)
							what := fmt.Sprint(kind, namespace, name, uid, member, node)
							if wrong := validation.IsDNS1123Subdomain(got); len(wrong) > 0 {
								t.Fatalf("%s is named %s: %v", what, got, wrong)
							}
							if before, taken := seen[got]; taken {
								t.Fatalf("%s and %s are both named %s", before, what, got)
							}
							if got != Name(owner, member, node) {
								t.Fatalf("%s has more than one name", what)
							}
							seen[got] = what
						}
					}
				}
			}
		}
	}
	// Names are stored in the cluster, so all versions of the agent must use the same ones.
	owner := program.Owner{Key: program.Key{Kind: "TcxNsProgram", Namespace: "tenant", Name: "counter"}, UID: uid}
	if got := Name(owner, "", "node"); got != "counter-da7726f8" {
		t.Errorf("the name's making changed: %s", got)
	}
}

func TestLabels(t *testing.T) {
	o := &v1alpha1.BpfApplication{}
	o.Name = strings.Repeat("long.", 50) + "name"
	symbol := "_ZNSt6vectorIiSaIiEE9push_backEOi$" + strings.Repeat("x", 100)
	for range 2 {
		o.Spec.Programs = append(o.Spec.Programs, v1alpha1.BpfApplicationProgram{Type: v1alpha1.ProgTypeUprobe, Uprobe: &v1alpha1.UprobeProgramInfo{
			BpfProgramCommon: v1alpha1.BpfProgramCommon{BpfFunctionName: "f"}, FunctionName: symbol, Target: "/bin/x",
		}})
	}
	owner := ownerOf(t, "BpfApplication", o)
	ids := map[string]bool{}
	for _, object := range Programs(owner, strings.Repeat("node.", 50)+"example", plan.Want(owner, program.Node{}, nil), nil, Outcome{}) {
		for key, value := range object.GetLabels() {
			if wrong := validation.IsValidLabelValue(value); len(wrong) > 0 {
				t.Errorf("%s=%s: %v", key, value, wrong)
			}
		}
		ids[object.GetLabels()[v1alpha1.LabelAppProgramID]] = true
	}
	if len(ids) != 2 {
		t.Errorf("two members have the labels %v", ids)
	}
}

// A new process of the agent reads the links from the reports.
func TestLinksComeBack(t *testing.T) {
	owner := tracepoint(t, "a/x", "b/y", "c/z")
	want := plan.Want(owner, program.Node{}, nil)
	actual := with(loaded(want, 2), 200, daemon.Link{}) // c/z isn't attached, and link 200 is unknown
	status := Programs(owner, "node", want, actual, attachErrors(want, "c/z"))[0].GetStatus()
	if len(status.Links) != 3 {
		t.Fatalf("links %v", status.Links)
	}
	known := maps.Clone(actual[0].Links)
	delete(known, 200)
	if got := LinksOf(status); !maps.Equal(got, known) {
		t.Errorf("got %v, want %v", got, known)
	}
	if got := LinksOf(&v1alpha1.BpfProgramStatus{Links: []v1alpha1.BpfProgramLink{{AttachPoint: "x", State: v1alpha1.LinkAttached}, {AttachPoint: "y", LinkID: 7, State: v1alpha1.LinkNotAttached}}}); len(got) != 0 {
		t.Errorf("links %v of what tells of none", got)
	}
}

func TestOutcomeJoinsItsErrors(t *testing.T) {
	if err := (Outcome{}).Err(); err != nil {
		t.Errorf("nothing went wrong: %v", err)
	}
	o := Outcome{
		Loads: map[int]error{1: errors.New("load 1"), 0: errors.New("load 0")},
		Attaches: map[Attach]error{
			{0, "g", daemon.Link{Point: "a"}}: errors.New("attach g"), {0, "f", daemon.Link{Point: "b"}}: errors.New("attach f b"),
			{0, "f", daemon.Link{Point: "a"}}: errors.New("attach f a"), {1, "e", daemon.Link{Point: "a"}}: errors.New("attach e"),
			{0, "f", daemon.Link{Point: "c"}}: fmt.Errorf("attach f c: %w", &UndoneError{"rolled back"}), // it is decided
		},
		Removals: []error{errors.New("unload")},
	}
	want := []string{"load 0", "load 1", "attach f a", "attach f b", "attach g", "attach e", "unload"}
	if got := strings.Split(o.Err().Error(), "\n"); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Upstream's fault 27: owner references that block deletion require a permission on the owner's
// finalizers, which the agent doesn't have and doesn't need.
func TestUpstreamFault27OwnerReferencesBlockNoDeletion(t *testing.T) {
	for _, kind := range v1alpha1.UserKinds {
		o := kind.New()
		switch o := o.(type) {
		case *v1alpha1.BpfApplication:
			o.Spec.Programs = []v1alpha1.BpfApplicationProgram{{Type: v1alpha1.ProgTypeTracepoint, Tracepoint: &v1alpha1.TracepointProgramInfo{}}}
		case *v1alpha1.BpfNsApplication:
			o.Spec.Programs = []v1alpha1.BpfNsApplicationProgram{{Type: v1alpha1.ProgTypeXDP, XDP: &v1alpha1.XdpNsProgramInfo{}}}
		case *v1alpha1.ClusterBpfApplication:
			o.Spec.Programs = []v1alpha1.ClusterBpfApplicationProgram{{Name: "f", Type: v1alpha1.ApplicationTracePoint, TracePoint: &v1alpha1.TracepointLinks{}}}
		}
		owner := ownerOf(t, kind.Name, o)
		objects := Programs(owner, "node", plan.Want(owner, program.Node{}, nil), nil, Outcome{})
		if len(objects) != 1 {
			t.Fatalf("%s: %d objects", kind.Name, len(objects))
		}
		references := objects[0].GetOwnerReferences()
		if len(references) != 1 || references[0].Controller == nil || !*references[0].Controller || references[0].BlockOwnerDeletion != nil {
			t.Errorf("%s: %+v", kind.Name, references)
		}
	}
}

// What policies and the registry said about an image is in the report, also before the image is loaded.
func TestBytecodeOfAnImage(t *testing.T) {
	owner := tracepoint(t, "a/x")
	owner.Bytecode = v1alpha1.BytecodeSelector{Image: &v1alpha1.BytecodeImage{Url: "quay.io/a/b:v1"}}
	want := plan.Want(owner, program.Node{}, nil)
	said := func(name string, verdict v1alpha1.PolicyVerdict, message string) v1alpha1.BpfProgramPolicy {
		return v1alpha1.BpfProgramPolicy{Name: name, Verdict: verdict, Message: message}
	}
	judgement := Judgement{
		Image: bytecode.Image{Reference: "quay.io/a/b:v1", Digest: "sha256:1", Manifest: "sha256:2"}, Signers: []string{"ci@example.com"},
		Policies: []v1alpha1.BpfProgramPolicy{said("bytecode", v1alpha1.VerdictAllowed, ""), said("signed", v1alpha1.VerdictWarned, "no signature")},
	}
	points := want
	points.Loads = slices.Clone(want.Loads)
	points.Loads[0].Programs = slices.Clone(want.Loads[0].Programs)
	// About attach points: only of a policy that allows the bytecode.
	points.Loads[0].Programs[0].Policies = []v1alpha1.BpfProgramPolicy{
		said("signed", v1alpha1.VerdictDenied, "at a/x"), said("bytecode", v1alpha1.VerdictWarned, "at a/x"), said("other", v1alpha1.VerdictDenied, "at a/x"),
	}
	running, another := loadedFrom(want, judgement.Image), loadedFrom(want, bytecode.Image{Reference: "quay.io/a/b:v0", Digest: "sha256:0"})
	single := judgement
	single.Image.Manifest = single.Image.Digest
	for name, test := range map[string]struct {
		plan      plan.Plan
		actual    []daemon.Program
		judgement Judgement
		want      v1alpha1.BpfProgramBytecode
		condition string
	}{
		"loaded": {want, running, judgement, v1alpha1.BpfProgramBytecode{
			Digest: "sha256:1", Manifest: "sha256:2", Signers: judgement.Signers, Policies: judgement.Policies,
		}, "Loaded/bpfmanLoaded: Successfully loaded bpfProgram; mode enforce would deny it: policy signed: no signature"},
		"loaded, with a verdict on attach points": {points, running, judgement, v1alpha1.BpfProgramBytecode{
			Digest: "sha256:1", Manifest: "sha256:2", Signers: judgement.Signers,
			Policies: []v1alpha1.BpfProgramPolicy{said("bytecode", v1alpha1.VerdictWarned, "at a/x"), said("signed", v1alpha1.VerdictWarned, "no signature")},
		}, "Loaded/bpfmanLoaded: Successfully loaded bpfProgram; mode enforce would deny it: policy bytecode: at a/x; policy signed: no signature"},
		"loaded from an image of one architecture": {want, loadedFrom(want, single.Image), single, v1alpha1.BpfProgramBytecode{
			Digest: "sha256:1", Signers: judgement.Signers, Policies: judgement.Policies,
		}, "Loaded/bpfmanLoaded: Successfully loaded bpfProgram; mode enforce would deny it: policy signed: no signature"},
		// The digest is that of what runs.
		"loaded from another image": {
			want, another, judgement,
			v1alpha1.BpfProgramBytecode{Signers: judgement.Signers, Policies: judgement.Policies},
			"Loaded/bpfmanLoaded: Successfully loaded bpfProgram; mode enforce would deny it: policy signed: no signature",
		},
		"not loaded": {want, nil, judgement, v1alpha1.BpfProgramBytecode{
			Digest: "sha256:1", Manifest: "sha256:2", Signers: judgement.Signers, Policies: judgement.Policies,
		}, "NotLoaded/bpfmanNotLoaded: the daemon does not have the program anymore, and the agent loads it again"},
	} {
		object := Programs(owner, "node", test.plan, test.actual, Outcome{Judgements: map[int]Judgement{0: test.judgement}})[0]
		test.want.Image = "quay.io/a/b:v1"
		if diff := cmp.Diff(&test.want, object.GetStatus().Bytecode); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
		if got, _, _ := strings.Cut(text(object), "\n"); got != test.condition {
			t.Errorf("%s: got\n%s\n\nwant\n%s", name, got, test.condition)
		}
	}
	// An object without bytecode has nothing to say about it.
	owner.Bytecode = v1alpha1.BytecodeSelector{}
	if b := Programs(owner, "node", want, nil, Outcome{Judgements: map[int]Judgement{0: {}}})[0].GetStatus().Bytecode; b != nil {
		t.Errorf("%+v", b)
	}
}

func loadedFrom(p plan.Plan, image bytecode.Image) []daemon.Program {
	programs := loaded(p, 1)
	for n := range programs {
		programs[n].Image = image
	}
	return programs
}

func unshared(programs []daemon.Program, variables string) []daemon.Program {
	for n := range programs {
		programs[n].Unshared = variables
	}
	return programs
}

// noted returns a plan whose programs have a note.
func noted(p plan.Plan, note string) plan.Plan {
	load := p.Loads[0]
	load.Programs = slices.Clone(load.Programs)
	for i := range load.Programs {
		load.Programs[i].Notes = []problem.Note{{Text: note}}
	}
	p.Loads = []plan.Load{load}
	return p
}

// The API server refuses a report that names an attach point twice, as a previous program can have two links there.
func TestAttachPointsAreUnique(t *testing.T) {
	before := tracepoint(t, "a/x", "b/y")
	actual := loaded(plan.Want(before, program.Node{}, nil), 2)
	actual[0].Links[103] = daemon.Link{Point: "a/x", Digest: "of-an-earlier-interface"}
	edited := tracepoint(t, "a/x", "b/y")
	edited.GlobalData = map[string][]byte{"sampling": {1}}
	for name, owner := range map[string]program.Owner{"kept": before, "previous": edited} {
		p := plan.Want(owner, program.Node{}, nil)
		o := Outcome{Loads: map[int]error{0: errors.New("it can't be loaded")}}
		got := Programs(owner, "node", p, actual, o)[0].GetStatus().Links
		if len(got) != 2 || got[0].AttachPoint != "a/x" || got[1].AttachPoint != "b/y" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Reports name the problem of what they say: the program's and each link's.
func TestProblems(t *testing.T) {
	t.Parallel()
	owner := tracepoint(t, "a/x", "b/y")
	want := plan.Want(owner, program.Node{}, nil)
	absent := fmt.Errorf("attach to b/y: %w", &program.AbsentError{Err: problem.Errorf(problem.NoSuchInterface, "it isn't there")})
	missing := Attach{Function: "f", Link: plan.LinkOf(want.Loads[0].Programs[0].Points[1])}
	blocked := plan.Plan{UID: uid, Blocked: []plan.Blocked{{
		Member: owner.Members[0], Condition: v1alpha1.BpfProgCondMapOwnerNotFound, Err: problem.Errorf(problem.NoSuchMapOwner, "none matches"),
	}}}
	refused := &daemon.Error{Op: "load f", Cause: status.Error(codes.FailedPrecondition, "task panicked")}
	doubted := plan.Want(owner, program.Node{}, nil)
	doubted.Loads[0].Programs[0].Problem = problem.Errorf(problem.LinksUnknown, "unknown")
	advised := plan.Want(owner, program.Node{}, nil)
	advised.Loads[0].Programs[0].Notes = []problem.Note{{Text: "unnamed"}, {Reason: problem.FieldWithoutEffect, Text: "ignored"}}
	for name, test := range map[string]struct {
		plan       plan.Plan
		links      int // loaded, unless it is negative
		outcome    Outcome
		want, link problem.Reason
	}{
		"attached":       {want, 2, Outcome{}, "", ""},
		"not attached":   {want, 1, Outcome{Attaches: map[Attach]error{missing: absent}}, problem.NoSuchInterface, problem.NoSuchInterface},
		"without a name": {want, 1, Outcome{Attaches: map[Attach]error{missing: errors.New("of an unknown kind")}}, "", ""},
		"rolled back":    {want, 1, Outcome{Attaches: map[Attach]error{missing: &UndoneError{Message: "undone"}}}, problem.RolledBack, problem.RolledBack},
		"not loaded":     {want, -1, Outcome{Loads: map[int]error{0: refused}}, problem.DaemonPanicked, ""},
		"not yet loaded": {want, -1, Outcome{}, problem.DaemonBusy, ""},
		"not removed":    {want, 2, Outcome{Removals: []error{errors.New("first"), refused}}, problem.DaemonPanicked, ""},
		"blocked":        {blocked, -1, Outcome{}, problem.NoSuchMapOwner, ""},
		"held":           {doubted, 2, Outcome{}, problem.LinksUnknown, ""},
		"with notes":     {advised, 2, Outcome{}, problem.FieldWithoutEffect, ""},
	} {
		var actual []daemon.Program
		if test.links >= 0 {
			actual = loaded(test.plan, test.links)
		}
		got, link := Programs(owner, "node", test.plan, actual, test.outcome)[0].GetStatus(), ""
		for _, l := range got.Links {
			link += l.Problem
		}
		if got.Problem != string(test.want) || link != string(test.link) {
			t.Errorf("%s: %q, and of links %q, want %q and %q", name, got.Problem, link, test.want, test.link)
		}
	}
}
