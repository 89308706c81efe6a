// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package plan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// application returns an owner. Its members are tracepoint programs, as
// "function tracepoint…", or fentry programs, as "function fentry:symbol".
func application(t *testing.T, members ...string) program.Owner {
	t.Helper()
	app := &v1alpha1.BpfApplication{}
	app.Name, app.UID, app.Generation = "app", "uid-1", 1
	path := "/app.o"
	app.Spec.ByteCode.Path = &path
	for _, m := range members {
		words := strings.Fields(m)
		common := v1alpha1.BpfProgramCommon{BpfFunctionName: words[0]}
		if len(words) == 2 && strings.HasPrefix(words[1], "fentry:") {
			app.Spec.Programs = append(app.Spec.Programs, v1alpha1.BpfApplicationProgram{
				Type:   v1alpha1.ProgTypeFentry,
				Fentry: &v1alpha1.FentryProgramInfo{BpfProgramCommon: common, FunctionName: strings.TrimPrefix(words[1], "fentry:")},
			})
			continue
		}
		app.Spec.Programs = append(app.Spec.Programs, v1alpha1.BpfApplicationProgram{
			Type: v1alpha1.ProgTypeTracepoint, Tracepoint: &v1alpha1.TracepointProgramInfo{
				BpfProgramCommon: common, Names: words[1:],
			},
		})
	}
	owner := program.OwnerOf("BpfApplication", app)
	return owner
}

// settle runs the steps until none are left, like the controller, and returns
// them.
func settle(t *testing.T, i *daemon.Inventory, owner program.Owner, p Plan) []string {
	t.Helper()
	ctx := context.Background()
	var taken []string
	for range 3 {
		steps := p.Diff(i.Of(owner.Key))
		if len(steps) == 0 {
			return taken
		}
		for _, s := range steps {
			var err error
			switch s.Op {
			case OpLoad:
				taken = append(taken, "load "+strings.Join(functions(p.Loads[s.Load]), "+"))
				request, requestErr := p.Loads[s.Load].Request(owner)
				if requestErr != nil {
					t.Fatal(requestErr)
				}
				err = i.Load(ctx, request)
			case OpAttach:
				taken = append(taken, "attach "+s.Function+" "+s.Point.Name)
				err = i.Attach(ctx, p.Present(s.Load, i.Of(owner.Key))[s.Function].ID, s.Point)
			case OpDetach:
				taken = append(taken, "detach "+s.Function)
				err = i.Detach(ctx, s.ProgramID, s.LinkID)
			case OpUnload:
				taken = append(taken, "unload")
				err = i.Unload(ctx, s.ProgramID)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Fatalf("the steps don't end: %v", taken)
	return nil
}

func functions(l Load) []string {
	var out []string
	for _, f := range l.Functions {
		out = append(out, f.GetName())
	}
	return out
}

func inventory(t *testing.T) (*daemon.Inventory, *daemontest.Daemon) {
	t.Helper()
	d := daemontest.New(t.TempDir())
	return inventoryOf(t, d), d
}

func inventoryOf(t *testing.T, d *daemontest.Daemon) *daemon.Inventory {
	t.Helper()
	i := daemon.NewInventory(d, d.Root)
	if _, err := i.Refresh(context.Background()); err != nil {
		t.Fatal(err)
	}
	return i
}

func TestStepsFromOneOwnerToAnother(t *testing.T) {
	for name, test := range map[string]struct {
		before, after []string // members; nil for no owner
		change        func(*program.Owner)
		want          []string
	}{
		"nothing to something":    {nil, []string{"f a/x b/y"}, nil, []string{"load f", "attach f a/x", "attach f b/y"}},
		"the same":                {[]string{"f a/x"}, []string{"f a/x"}, nil, nil},
		"something to nothing":    {[]string{"f a/x", "g b/y"}, nil, nil, []string{"unload", "unload"}},
		"a further attach point":  {[]string{"f a/x"}, []string{"f a/x b/y"}, nil, []string{"attach f b/y"}},
		"an attach point less":    {[]string{"f a/x b/y"}, []string{"f a/x"}, nil, []string{"detach f"}},
		"no attach point":         {nil, []string{"f"}, nil, []string{"load f"}},
		"all members in one Load": {nil, []string{"f a/x", "g b/y"}, nil, []string{"load f+g", "attach f a/x", "attach g b/y"}},
		"members in another order": {
			[]string{"f a/x", "g b/y"},
			[]string{"g b/y", "f a/x"},
			nil, nil,
		},
		"a further member loads all anew, before the old ones go": {
			[]string{"f a/x"},
			[]string{"f a/x", "g b/y"},
			nil,
			[]string{"load f+g", "attach f a/x", "attach g b/y", "unload"},
		},
		"no globals, written in another way": {
			[]string{"f a/x"},
			[]string{"f a/x"},
			func(o *program.Owner) { o.GlobalData = map[string][]byte{} },
			nil,
		},
		"other globals": {
			[]string{"f a/x"},
			[]string{"f a/x"},
			func(o *program.Owner) { o.GlobalData = map[string][]byte{"sampling": {1}} },
			[]string{"load f", "attach f a/x", "unload"},
		},
		"another file": {
			[]string{"f a/x"},
			[]string{"f a/x"},
			func(o *program.Owner) { path := "/other.o"; o.Bytecode.Path = &path },
			[]string{"load f", "attach f a/x", "unload"},
		},
		"empty globals, written in another way": {
			[]string{"f a/x"},
			[]string{"f a/x"},
			func(o *program.Owner) { o.GlobalData = nil },
			nil,
		},
		"an owner of the same name made anew": {
			[]string{"f a/x"},
			[]string{"f a/x"},
			func(o *program.Owner) { o.UID = "uid-2" },
			[]string{"load f", "attach f a/x", "unload"},
		},
		"a function twice: loaded once, with the links of both": {
			nil,
			[]string{"f a/x", "g b/y", "f c/z a/x"},
			nil,
			[]string{"load f+g", "attach f a/x", "attach f c/z", "attach g b/y"},
		},
		"a function a second time, and no more": {
			[]string{"f a/x"},
			[]string{"f a/x", "f c/z"},
			nil,
			[]string{"attach f c/z"},
		},
		"a function twice, one use dropped": {
			[]string{"f a/x", "f c/z"},
			[]string{"f a/x"},
			nil,
			[]string{"detach f"},
		},
		"a function of two symbols: a second Load, and none takes a name twice": {
			nil,
			[]string{"f fentry:x", "g b/y", "f fentry:z"},
			nil,
			[]string{"load f+g", "attach f x", "attach g b/y", "load f", "attach f z"},
		},
		"nothing but a member without type: what is loaded stays": {[]string{"f a/x"}, []string{"f a/x"}, untype(0), nil},
		"a member that lost its type: the others go on": {
			[]string{"f a/x", "g b/y"},
			[]string{"f a/x", "g b/y"},
			untype(1),
			[]string{"load f", "attach f a/x", "unload", "unload"},
		},
		"a function of two symbols, one dropped": {
			[]string{"f fentry:x", "f fentry:z"},
			[]string{"f fentry:x"},
			nil,
			[]string{"unload"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			i, _ := inventory(t)
			if test.before != nil {
				owner := application(t, test.before...)
				if strings.HasPrefix(name, "empty globals") {
					owner.GlobalData = map[string][]byte{}
				}
				settle(t, i, owner, Want(owner, program.Node{}, nil))
			}
			owner := application(t, test.after...)
			var p Plan
			if test.after != nil {
				if test.change != nil {
					test.change(&owner)
				}
				p = Want(owner, program.Node{}, nil)
			}
			if got := settle(t, i, owner, p); !slices.Equal(got, test.want) {
				t.Errorf("steps %q, want %q", got, test.want)
			}
		})
	}
}

// untype removes the type of an owner's n-th member.
func untype(n int) func(*program.Owner) {
	return func(o *program.Owner) {
		app := &v1alpha1.BpfApplication{}
		app.Spec.Programs = make([]v1alpha1.BpfApplicationProgram, 1)
		o.Members[n] = program.OwnerOf("BpfApplication", app).Members[0]
	}
}

// Programs that another client unloaded, or that an earlier process of the agent
// left, are repaired.
func TestStepsFromWhatIsFound(t *testing.T) {
	owner := application(t, "f a/x", "f fentry:x", "f c/z", "g fentry:x")
	p := Want(owner, program.Node{}, nil)
	for name, test := range map[string]struct {
		disturb func(*testing.T, *daemon.Inventory, *daemontest.Daemon) *daemon.Inventory
		want    []string
	}{
		"one of two Loads is gone": {
			func(t *testing.T, i *daemon.Inventory, _ *daemontest.Daemon) *daemon.Inventory {
				t.Helper()
				return unload(t, i, owner, 2)
			},
			[]string{"load f", "attach f x"},
		},
		"one program of a Load is gone": {
			func(t *testing.T, i *daemon.Inventory, _ *daemontest.Daemon) *daemon.Inventory {
				t.Helper()
				return unload(t, i, owner, 0)
			},
			[]string{"load f+g", "attach f a/x", "attach f c/z", "attach g x", "unload"},
		},
		"links that nothing tells of": {
			// A new process of the agent, without a record of the links.
			func(t *testing.T, _ *daemon.Inventory, d *daemontest.Daemon) *daemon.Inventory {
				t.Helper()
				return inventoryOf(t, d)
			},
			[]string{"detach f", "detach f", "attach f a/x", "attach f c/z", "detach g", "attach g x", "detach f", "attach f x"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			i, d := inventory(t)
			settle(t, i, owner, p)
			i = test.disturb(t, i, d)
			if got := settle(t, i, owner, p); !slices.Equal(got, test.want) {
				t.Errorf("steps %q, want %q", got, test.want)
			}
			if n := len(d.Programs()); n != 3 {
				t.Errorf("%d programs in the end", n)
			}
		})
	}
}

func unload(t *testing.T, i *daemon.Inventory, owner program.Owner, n int) *daemon.Inventory {
	t.Helper()
	if err := i.Unload(context.Background(), i.Of(owner.Key)[n].ID); err != nil {
		t.Fatal(err)
	}
	return i
}

// Upstream's fault 18: map owners of namespaced kinds are taken from any
// namespace.
func TestUpstreamFault18MapOwners(t *testing.T) {
	labels := map[string]string{v1alpha1.LabelOwnedByProgram: "other"}
	for name, test := range map[string]struct {
		owners    []MapOwner
		want      uint32
		condition v1alpha1.BpfProgramConditionType
		message   string
	}{
		"one":                            {[]MapOwner{{Name: "other-1", Labels: labels, ID: 7}}, 7, "", ""},
		"none":                           {nil, 0, v1alpha1.BpfProgCondMapOwnerNotFound, "no program on this node matches mapownerselector bpfman.io/ownedByProgram=other"},
		"not loaded":                     {[]MapOwner{{Name: "other-1", Labels: labels}}, 0, v1alpha1.BpfProgCondMapOwnerNotLoaded, "map owner other-1 is not loaded on this node"},
		"several":                        {[]MapOwner{{Name: "b", Labels: labels, ID: 7}, {Name: "a", Labels: labels, ID: 8}}, 0, v1alpha1.BpfProgCondMapOwnerNotFound, "mapownerselector bpfman.io/ownedByProgram=other matches 2 programs on this node instead of one: [a b]"},
		"several objects of one program": {[]MapOwner{{Name: "b", Labels: labels, ID: 7}, {Name: "a", Labels: labels, ID: 7}}, 7, "", ""},
		"another namespace":              {[]MapOwner{{Name: "x", Namespace: "evil", Labels: labels, ID: 7}}, 0, v1alpha1.BpfProgCondMapOwnerNotFound, "no program on this node matches mapownerselector bpfman.io/ownedByProgram=other"},
		"own beside another":             {[]MapOwner{{Name: "x", Namespace: "evil", Labels: labels, ID: 7}, {Name: "other-1", Labels: labels, ID: 8}}, 8, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			object := &v1alpha1.TracepointProgram{}
			object.Spec.BpfFunctionName = "f"
			object.Spec.MapOwnerSelector = metav1.LabelSelector{MatchLabels: labels}
			owner := program.OwnerOf("TracepointProgram", object)
			p := Want(owner, program.Node{}, test.owners)
			if test.condition != "" {
				if len(p.Loads) != 0 || len(p.Blocked) != 1 || p.Blocked[0].Condition != test.condition || p.Blocked[0].Err.Error() != test.message ||
					p.Blocked[0].LoadInfo().GetName() != "f" {
					t.Errorf("got %+v", p)
				}
				return
			}
			if len(p.Loads) != 1 || p.Loads[0].MapOwner == nil || *p.Loads[0].MapOwner != test.want {
				t.Errorf("got %+v", p)
			}
		})
	}
}

// The file in the daemon's request for each form of bytecode, or the error. For an image, the file isn't known yet.
func TestRequestedBytecode(t *testing.T) {
	const digest = "@sha256:" + "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	image := func(url string) v1alpha1.BytecodeSelector {
		return v1alpha1.BytecodeSelector{Image: &v1alpha1.BytecodeImage{Url: url}}
	}
	file := func(path string) v1alpha1.BytecodeSelector { return v1alpha1.BytecodeSelector{Path: &path} }
	for _, test := range []struct {
		bytecode  v1alpha1.BytecodeSelector
		want, err string
	}{
		{image("quay.io/a/b"), "", ""},
		{image("quay.io/a/b:v1"), "", ""},
		{image("quay.io/a/b:v1" + digest), "", ""},
		{image("UPPER CASE"), "", ""},
		{file("/opt/x.o"), "/opt/x.o", ""},
		{file("/device/x.o"), "/device/x.o", ""},
		{file("/dev/zero"), "", "bytecode path /dev/zero is not a regular file: the daemon would never finish reading it"},
		{file("//opt/../dev/./zero"), "", "bytecode path //opt/../dev/./zero is not a regular file: the daemon would never finish reading it"},
		{file("dev/zero"), "", "bytecode path dev/zero is not a regular file: the daemon would never finish reading it"},
		{file("/run/bpfman/cri/containerd/io.containerd.runtime.v2.task/k8s.io/id/log"), "", "bytecode path /run/bpfman/cri/containerd/io.containerd.runtime.v2.task/k8s.io/id/log is not a regular file: the daemon would never finish reading it"},
		{file("/var/run/bpfman/cri/crio/x"), "", "bytecode path /var/run/bpfman/cri/crio/x is not a regular file: the daemon would never finish reading it"},
		{file("/run/bpfman-sock/bpfman.sock"), "", "bytecode path /run/bpfman-sock/bpfman.sock is not a regular file: the daemon would never finish reading it"},
		{file("/run/bpfman/fs/maps/7/b"), "", "bytecode path /run/bpfman/fs/maps/7/b is not a regular file: the daemon would never finish reading it"},
		{file("/var/run//bpfman/./fs/maps/7/b"), "", "bytecode path /var/run//bpfman/./fs/maps/7/b is not a regular file: the daemon would never finish reading it"},
		{file("/run/bpfman"), "", "bytecode path /run/bpfman is not a regular file: the daemon would never finish reading it"},
		{file("/run/bpfman-of-others/x.o"), "/run/bpfman-of-others/x.o", ""},
		{file("/var/run/../dev/zero"), "/var/dev/zero", ""},
		{file("opt//x.o"), "/opt/x.o", ""},
		{file("/var/lib/bpfman/bytecode-of-others/x.o"), "/var/lib/bpfman/bytecode-of-others/x.o", ""},
		{file("/var/lib/bpfman/bytecode/images/x.o"), "", "bytecode path /var/lib/bpfman/bytecode/images/x.o is in the node's store of images: set bytecode.image instead"},
		{file("/var/lib//bpfman/x/../bytecode/images/x.o"), "", "bytecode path /var/lib//bpfman/x/../bytecode/images/x.o is in the node's store of images: set bytecode.image instead"},
		{v1alpha1.BytecodeSelector{}, "", "bytecode has neither an image nor a path"},
		{image(""), "", "bytecode.image.url is empty"},
		{file(""), "", "bytecode.path is empty"},
		{v1alpha1.BytecodeSelector{Image: image("quay.io/a/b").Image, Path: file("/opt/x.o").Path}, "", ""},
	} {
		owner := application(t, "f a/x")
		owner.Bytecode = test.bytecode
		request, err := Want(owner, program.Node{}, nil).Loads[0].Request(owner)
		if err != nil || test.err != "" {
			if err == nil || err.Error() != test.err {
				t.Errorf("%v, want %q", err, test.err)
			}
			continue
		}
		if got := request.GetBytecode().GetFile(); got != test.want || test.want == "" && request.Bytecode != nil {
			t.Errorf("%s, want %s", request.Bytecode, test.want)
		}
	}
}

// Changed hashes would reload all programs when the agent is upgraded.
func TestLoadIDsStay(t *testing.T) {
	owner := application(t, "f a/x", "g b/y")
	owner.GlobalData = map[string][]byte{"a": {1, 2}, "b": {3}}
	const want = "10e610ea4f83d19a1f5dd6045216aea0"
	id := func(globals map[string]json.RawMessage) string {
		owner.Globals = globals
		return Want(owner, program.Node{}, nil).Loads[0].ID
	}
	for name, globals := range map[string]map[string]json.RawMessage{"no globals": nil, "empty globals": {}} {
		if got := id(globals); got != want {
			t.Errorf("%s: id %s, want %s", name, got, want)
		}
	}
	one, two := id(map[string]json.RawMessage{"c": json.RawMessage("1")}), id(map[string]json.RawMessage{"c": json.RawMessage("2")})
	if one == two || one == want || two == want {
		t.Errorf("ids %s and %s with different globals", one, two)
	}
}

// An application with many members needs only one Load.
func TestLargeApplication(t *testing.T) {
	var members []string
	for n := range 300 {
		members = append(members, fmt.Sprintf("f%d a/x", n))
	}
	i, d := inventory(t)
	owner := application(t, members...)
	settle(t, i, owner, Want(owner, program.Node{}, nil))
	loads := 0
	for _, call := range d.Calls() {
		if call == "Load" {
			loads++
		}
	}
	if loads != 1 {
		t.Errorf("%d Loads", loads)
	}
}

// Upstream's fault 3: if an object has neither an image nor a path, which the
// schema allows, the agent panics on all nodes.
func TestUpstreamFault03BytecodeOfNeitherForm(t *testing.T) {
	owner := application(t, "f a/x")
	owner.Bytecode = v1alpha1.BytecodeSelector{}
	if _, err := Want(owner, program.Node{}, nil).Loads[0].Request(owner); err == nil || err.Error() != "bytecode has neither an image nor a path" {
		t.Errorf("%v", err)
	}
}

// Only an image says the types of variables.
func TestGlobalsOfAFile(t *testing.T) {
	owner := application(t, "f a/x")
	owner.Bytecode = v1alpha1.BytecodeSelector{Path: new("/x.o")}
	owner.Globals = map[string]json.RawMessage{"port": json.RawMessage("1")}
	if _, err := Want(owner, program.Node{}, nil).Loads[0].Request(owner); err == nil || !strings.HasPrefix(err.Error(), "globals need an image") {
		t.Errorf("%v", err)
	}
}

// While the reports that could record a link can't be read, the link stays, and nothing is attached in its place. Links that
// are known are detached as usual.
func TestHeldPrograms(t *testing.T) {
	i, _ := inventory(t)
	settle(t, i, application(t, "f a/x b/y", "g c/z"), Want(application(t, "f a/x b/y", "g c/z"), program.Node{}, nil))
	owner := application(t, "f b/y d/w", "g c/z e/v")
	known := i.Of(owner.Key)
	for _, loaded := range known {
		for id, link := range loaded.Links {
			if link.Point == "b/y" {
				loaded.Links[id] = daemon.Link{}
			}
		}
	}
	p := Want(owner, program.Node{}, nil)
	p = p.WithHeld(func(member program.Member) bool { return member.LoadInfo().GetName() == "f" })
	var taken []string
	for _, s := range p.Diff(known) {
		taken = append(taken, fmt.Sprint(s.Op, " ", s.Function, " ", s.Point.Name))
	}
	if want := []string{fmt.Sprint(OpDetach, " f "), fmt.Sprint(OpAttach, " g e/v")}; !slices.Equal(taken, want) {
		t.Errorf("%q, want %q", taken, want)
	}
	if p.Problems() == nil {
		t.Error("there is no problem")
	}
}

// flows returns an owner with one TCX program, which discovers the interfaces of the node, or of pods.
func flows(inPods bool) program.Owner {
	object := &v1alpha1.TcxProgram{}
	object.Name, object.UID = "flows", "uid-1"
	path, yes := "/flows.o", true
	object.Spec.ByteCode.Path = &path
	object.Spec.BpfFunctionName, object.Spec.Direction = "flows", "ingress"
	object.Spec.InterfaceSelector.InterfacesDiscoveryConfig = &v1alpha1.InterfaceDiscovery{InterfaceAutoDiscovery: &yes}
	if inPods {
		object.Spec.Containers = &v1alpha1.ContainerSelector{}
	}
	return program.OwnerOf("TcxProgram", object)
}

// Only what is attached to an interface of the node can cut the node off.
func TestAttachedOnNode(t *testing.T) {
	pod := program.Container{Namespace: "acme", Pod: "web", PodUID: "1", Sandbox: "s", NetNS: "/var/run/netns/1", Name: "web", ID: "c", Interfaces: []string{"eth0"}}
	node := program.Node{Interfaces: map[string]program.Interface{"eth0": {Index: 2}}, Containers: []program.Container{pod}}
	for name, test := range map[string]struct {
		owner program.Owner
		want  []string
	}{
		"on an interface of the node": {flows(false), []string{"eth0 ingress"}},
		"in a pod":                    {flows(true), nil},
		"at a tracepoint":             {application(t, "f a/x"), nil},
	} {
		i, _ := inventory(t)
		p := Want(test.owner, node, nil)
		if len(p.AttachedOnNode(nil)) > 0 {
			t.Errorf("%s: attached before anything is loaded", name)
		}
		settle(t, i, test.owner, p)
		actual := i.Of(test.owner.Key)
		var got []string
		for _, place := range p.AttachedOnNode(actual) {
			got = append(got, place.Point)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q", name, got)
		}
		for id := range actual[0].Links {
			delete(actual[0].Links, id)
		}
		if len(p.AttachedOnNode(actual)) > 0 {
			t.Errorf("%s: attached without a link", name)
		}
	}
}

// A version is attached to interfaces of the node only where it was confirmed, and elsewhere as before. What is attached there
// stays.
func TestConfine(t *testing.T) {
	undone, absent := errors.New("undone"), &program.AbsentError{Err: errors.New("absent")}
	member := func(id, function string, points ...program.AttachPoint) Program {
		o := &v1alpha1.XdpProgram{}
		o.Spec.BpfFunctionName = function
		m := program.OwnerOf("XdpProgram", o).Members[0]
		m.ID = id
		return Program{Member: m, Points: points}
	}
	at := func(name, digest, netns string, lack error) program.AttachPoint {
		priority, err := strconv.ParseInt(digest, 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		info := &gobpfman.XDPAttachInfo{Iface: name, Priority: int32(priority)}
		if netns != "" {
			info.Netns = &netns
		}
		return program.AttachPoint{Name: name, Digest: digest, Lack: lack, Info: &gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_XdpAttachInfo{XdpAttachInfo: info}}}
	}
	functions := []*gobpfman.LoadInfo{{Name: "f"}, {Name: "g"}}
	p := Plan{UID: "uid", Loads: []Load{{ID: "id", Functions: functions, Programs: []Program{
		member("a", "f", at("eth0", "1", "", nil), at("eth1", "1", "", nil), at("eth2", "1", "", absent), at("pod", "1", "/proc/1/ns/net", nil)),
		member("b", "f", at("eth1", "1", "", nil), at("eth0", "2", "", nil)), // the link to eth1 is that of a, the one to eth0 isn't
		member("c", "g", at("eth0", "1", "", nil)),
	}}}}
	links := map[string]map[uint32]daemon.Link{"f": {}, "g": {}}
	for _, wanted := range p.Loads[0].Programs {
		for _, point := range wanted.Points {
			of := links[wanted.Function()]
			if known := slices.Contains(slices.Collect(maps.Values(of)), LinkOf(point)); !known && point.Lack == nil {
				of[uint32(len(of)+1)] = LinkOf(point)
			}
		}
	}
	actual := []daemon.Program{{ID: 1, OwnerUID: "uid", LoadID: "id", Function: "f", Links: links["f"]}, {ID: 2, OwnerUID: "uid", LoadID: "id", Function: "g", Links: links["g"]}}
	// One place is from a record of an earlier version.
	p = p.ConfinedTo([]program.Place{p.Loads[0].Programs[0].Place(p.Loads[0].Programs[0].Points[0]), {Member: "b", Point: "eth1"}}, undone)
	var steps []string
	for _, step := range p.Diff(actual) {
		switch step.Op {
		case OpDetach:
			link := links[step.Function][step.LinkID]
			steps = append(steps, fmt.Sprintf("detach %s from %s/%s", step.Function, link.Point, link.Digest))
		case OpAttach:
			steps = append(steps, fmt.Sprintf("not %s at %s/%s: %v", step.Function, step.Point.Name, step.Point.Digest, step.Point.Lack))
		default:
			t.Errorf("%+v", step)
		}
	}
	want := []string{"detach f from eth0/2", "not f at eth2/1: absent", "not f at eth0/2: undone", "detach g from eth0/1", "not g at eth0/1: undone"}
	if !slices.Equal(steps, want) {
		t.Errorf("the steps are %q, want %q", steps, want)
	}
}

// If it isn't known which pods have the network of the node, links at its interfaces stay at certain places only.
func TestStay(t *testing.T) {
	inPods := func(priorities ...int32) program.Owner {
		app := &v1alpha1.BpfApplication{}
		app.UID = "uid-1"
		for _, priority := range priorities {
			xdp := &v1alpha1.XdpProgramInfo{InterfaceSelector: v1alpha1.InterfaceSelector{Interfaces: &[]string{"eth0", "eth1"}}, Priority: priority, Containers: &v1alpha1.ContainerSelector{}}
			xdp.BpfFunctionName = "f"
			app.Spec.Programs = append(app.Spec.Programs, v1alpha1.BpfApplicationProgram{Type: v1alpha1.ProgTypeXDP, XDP: xdp})
		}
		return program.OwnerOf("BpfApplication", app)
	}
	unknown := program.Node{ContainersErr: errors.New("containers are unknown")}
	both := Want(inPods(1, 2), program.Node{Hosted: true}, nil).Loads[0].Programs
	first, second := both[0].Points, both[1].Points
	links := map[uint32]daemon.Link{1: LinkOf(first[0]), 2: LinkOf(first[1]), 3: LinkOf(second[0]), 4: {Point: "eth1 in pod a/b", Digest: "1"}}
	for name, c := range map[string]struct {
		owner    program.Owner
		node     program.Node
		places   []program.Place
		detached []uint32
	}{
		"anywhere":                       {inPods(1), unknown, nil, nil},
		"where it was confirmed":         {inPods(1), unknown, []program.Place{both[0].Place(first[0])}, []uint32{2, 3}},
		"another program in the place":   {inPods(2, 1), unknown, []program.Place{both[1].Place(second[0])}, []uint32{1, 2}},
		"in a record of another version": {inPods(1), unknown, []program.Place{{Member: both[0].ID, Point: "eth0"}}, []uint32{2, 3}},
		"no pods":                        {inPods(1), program.Node{}, []program.Place{both[0].Place(first[0])}, []uint32{1, 2, 3, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			p := Want(c.owner, c.node, nil)
			if c.places != nil {
				p = p.StayingAt(c.places, c.node)
			}
			var detached []uint32
			for _, step := range p.Diff([]daemon.Program{{ID: 1, OwnerUID: "uid-1", LoadID: p.Loads[0].ID, Function: "f", Links: links}}) {
				if step.Op != OpDetach {
					t.Errorf("%+v", step)
				}
				detached = append(detached, step.LinkID)
			}
			if !slices.Equal(detached, c.detached) {
				t.Errorf("detached are %d, want %d", detached, c.detached)
			}
		})
	}
}

// The programs of an earlier version stay until those of the plan are loaded.
func TestAlone(t *testing.T) {
	p := Plan{UID: "uid", Loads: []Load{{ID: "id", Functions: []*gobpfman.LoadInfo{{Name: "f"}}}, {ID: "another", Functions: []*gobpfman.LoadInfo{{Name: "g"}}}}}
	f, g := daemon.Program{ID: 2, OwnerUID: "uid", LoadID: "id", Function: "f"}, daemon.Program{ID: 3, OwnerUID: "uid", LoadID: "another", Function: "g"}
	earlier := daemon.Program{ID: 1, OwnerUID: "uid", LoadID: "earlier", Function: "f"}
	for name, c := range map[string]struct {
		actual []daemon.Program
		alone  bool
	}{
		"nothing":                       {nil, true},
		"a part":                        {[]daemon.Program{f}, true},
		"all":                           {[]daemon.Program{f, g}, true},
		"a part and an earlier version": {[]daemon.Program{earlier, f}, false},
		"an earlier version":            {[]daemon.Program{earlier}, false},
	} {
		if p.Alone(c.actual) != c.alone {
			t.Errorf("%s: alone is %t", name, !c.alone)
		}
	}
}

// An interface that was discovered can vanish before it is attached, one that is named is expected.
func TestDiscovers(t *testing.T) {
	discovered := Want(flows(false), program.Node{Interfaces: map[string]program.Interface{"eth0": {Index: 2}, "eth1": {Index: 3}}}, nil)
	there := LinkOf(discovered.Loads[0].Programs[0].Points[0])
	refused := Want(flows(false), program.Node{Interfaces: map[string]program.Interface{"eth0": {Index: 2}}}, nil)
	refused = refused.ConfinedTo(nil, errors.New("undone"))
	named := Want(application(t, "f a/x"), program.Node{}, nil)
	for name, test := range map[string]struct {
		plan     Plan
		load     int
		function string
		link     daemon.Link
		want     bool
	}{
		"discovered":                 {discovered, 0, "flows", there, true},
		"the second one":             {discovered, 0, "flows", LinkOf(discovered.Loads[0].Programs[0].Points[1]), true},
		"one that is refused":        {refused, 0, "flows", there, false},
		"another interface":          {discovered, 0, "flows", daemon.Link{Point: "eth9 ingress"}, false},
		"another function":           {discovered, 0, "f", there, false},
		"a Load that the plan lacks": {discovered, 1, "flows", there, false},
		"named":                      {named, 0, "f", LinkOf(named.Loads[0].Programs[0].Points[0]), false},
	} {
		if got := test.plan.Discovers(test.load, test.function, test.link); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestWants(t *testing.T) {
	wanted := Want(application(t, "f a/x b/y"), program.Node{}, nil).Loads[0].Programs[0]
	for _, point := range wanted.Points {
		if !wanted.Wants(LinkOf(point)) {
			t.Errorf("%s isn't wanted", point.Name)
		}
	}
	if other := (daemon.Link{Point: wanted.Points[0].Name, Digest: "another"}); wanted.Wants(other) {
		t.Error("another link of the attach point is wanted")
	}
}

// A program that is attached somewhere isn't idle.
func TestIdle(t *testing.T) {
	for interfaces, want := range map[int]v1alpha1.BpfProgramConditionType{0: v1alpha1.BpfProgCondNoInterfacesOnNode, 1: "", 2: ""} {
		node := program.Node{Interfaces: map[string]program.Interface{}}
		for n := range interfaces {
			node.Interfaces[fmt.Sprint("eth", n)] = program.Interface{Index: n + 1}
		}
		if got := Want(flows(false), node, nil).Loads[0].Programs[0].Idle; got != want {
			t.Errorf("with %d interfaces: %q, want %q", interfaces, got, want)
		}
	}
}

// Members with different map owners can't be in one Load.
func TestMapOwnersOfMembers(t *testing.T) {
	app := &v1alpha1.BpfApplication{}
	app.Name, app.UID = "app", "uid-1"
	path := "/app.o"
	app.Spec.ByteCode.Path = &path
	for _, shared := range []string{"a", "", "b", "a"} {
		common := v1alpha1.BpfProgramCommon{BpfFunctionName: "f" + shared}
		if shared != "" {
			common.MapOwnerSelector = metav1.LabelSelector{MatchLabels: map[string]string{"of": shared}}
		}
		app.Spec.Programs = append(app.Spec.Programs, v1alpha1.BpfApplicationProgram{
			Type: v1alpha1.ProgTypeTracepoint, Tracepoint: &v1alpha1.TracepointProgramInfo{BpfProgramCommon: common, Names: []string{"x/y"}},
		})
	}
	p := Want(program.OwnerOf("BpfApplication", app), program.Node{}, []MapOwner{
		{Name: "a", Labels: map[string]string{"of": "a"}, ID: 7}, {Name: "b", Labels: map[string]string{"of": "b"}, ID: 8},
	})
	var loads []string
	for _, load := range p.Loads {
		of := uint32(0)
		if load.MapOwner != nil {
			of = *load.MapOwner
		}
		loads = append(loads, fmt.Sprint(of, " ", functions(load), " ", len(load.Programs)))
	}
	if want := []string{"7 [fa] 2", "0 [f] 1", "8 [fb] 1"}; !slices.Equal(loads, want) {
		t.Errorf("%q, want %q", loads, want)
	}
}

// A value of another type is decoded as none.
func TestGlobalsThatAreNeitherForm(t *testing.T) {
	owner := application(t, "f a/x")
	owner.GlobalData = map[string][]byte{"fine": {}, "limit": nil}
	if _, err := Want(owner, program.Node{}, nil).Loads[0].Request(owner); err == nil || !strings.HasPrefix(err.Error(), "globaldata limit is neither base64 nor a list of bytes: set a number") {
		t.Errorf("%v", err)
	}
}

// The metadata of a program in the daemon says whose it is, even after all reports are lost.
func TestMetadataOfARequest(t *testing.T) {
	for namespace, want := range map[string]string{"": "", "tenant": "tenant"} {
		owner := application(t, "f a/x")
		owner.Namespace = namespace
		request, err := Want(owner, program.Node{}, nil).Loads[0].Request(owner)
		if err != nil {
			t.Fatal(err)
		}
		got, there := request.Metadata[v1alpha1.MetadataNamespace]
		if got != want || there != (want != "") || request.Metadata[v1alpha1.MetadataProgramName] != "app" || request.GetUuid() != "uid-1" {
			t.Errorf("namespace %q: %v of %s", namespace, request.Metadata, request.GetUuid())
		}
	}
}

// A blocked program keeps what is loaded of its own function. Another owner's program isn't its own, even if it has the same
// name.
func TestKeptFor(t *testing.T) {
	member := func(function string) Blocked { return Blocked{Member: application(t, function+" a/x").Members[0]} }
	nameless := member("f")
	object := &v1alpha1.BpfApplication{}
	object.Spec.Programs = make([]v1alpha1.BpfApplicationProgram, 1)
	nameless.Member = program.OwnerOf("BpfApplication", object).Members[0]
	loads := Want(application(t, "g b/y"), program.Node{}, nil).Loads
	for name, test := range map[string]struct {
		blocked Blocked
		loads   []Load
		uid     string
		want    bool
	}{
		"its function":                            {member("f"), loads, "uid-1", true},
		"another function":                        {member("g"), loads, "uid-1", false},
		"of a former object of the same name":     {member("f"), loads, "uid-0", false},
		"without a function name, alone":          {nameless, nil, "uid-1", true},
		"without a function name, beside another": {nameless, loads, "uid-1", false},
	} {
		p := Plan{UID: "uid-1", Loads: test.loads}
		if got := p.KeptFor(test.blocked, daemon.Program{Function: "f", OwnerUID: test.uid}); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
