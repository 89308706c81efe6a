// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package manifest

import (
	"strings"
	"testing"

	"gotest.tools/v3/golden"
	"sigs.k8s.io/yaml"

	"github.com/bpfman/bpfman-operator/bytecode/object"
	"github.com/bpfman/bpfman-operator/internal/reader"
)

// content contains a program of each type, with sections that name an attach point, and without.
var content = object.Object{Programs: []object.Program{
	{Name: "filter", Type: "tc", Section: "classifier"},
	{Name: "bare_tracepoint", Type: "tracepoint", Section: "tracepoint"},
	{Name: "count", Type: "xdp", Section: "xdp"},
	{Name: "enter", Type: "fentry", Section: "fentry/do_unlinkat"},
	{Name: "exit", Type: "fexit", Section: "fexit/do_unlinkat"},
	{Name: "kills", Type: "tracepoint", Section: "tracepoint/syscalls/sys_enter_kill"},
	{Name: "Line_Read", Type: "uprobe", Section: "uprobe//usr/bin/bash:readline"},
	{Name: "returned", Type: "uretprobe", Section: "uretprobe"},
	{Name: "sockets", Type: "sockops", Section: "sockops", Unsupported: "bpfman has no kind for it"},
	{Name: "wake", Type: "kprobe", Section: "kprobe/try_to_wake_up"},
	{Name: "woken", Type: "kretprobe", Section: "kretprobe/try_to_wake_up"},
}}

func options(kind string, functions ...string) Options {
	return Options{Kind: kind, Functions: functions, Image: "registry.example.com/team/all_of-it:v1", Namespace: "team"}
}

func TestObject(t *testing.T) {
	attached := options("tcxprogram")
	attached.AttachTo, attached.Name = map[string]string{"": "eth1"}, "on-eth1"
	probe := options("uprobe", "returned")
	probe.AttachTo, probe.Target = map[string]string{"returned": "malloc"}, "libc"
	most := options("application", "filter", "count", "enter", "exit", "kills", "bare_tracepoint", "Line_Read", "wake", "woken")
	most.AttachTo = map[string]string{"bare_tracepoint": "sched/sched_switch", "filter": "eth0"}
	linked := most
	linked.Kind = "clusterbpfapplication"
	for name, o := range map[string]Options{
		"clusterapplication": linked,
		"xdp":                options("xdp"), "tcx": options("tcx"), "tc": options("tc"), "tracepoint": options("tracepoint", "kills"),
		"kprobe": options("kprobe", "wake"), "kretprobe": options("KprobeProgram", "woken"), "uprobe": options("uprobe", "Line_Read"),
		"uretprobe": probe, "fentry": options("fentry"), "fexit": options("fexit"), "tcxns": options("tcxnsprog"), "on-eth1": attached,
		"application": most, "nsapplication": options("nsapplication", "filter", "count"), "application-of-one": options("bpfapp", "count"),
	} {
		t.Run(name, func(t *testing.T) {
			object, notes, err := Object(content, o)
			if err != nil {
				t.Fatal(err)
			}
			if len(notes) > 0 {
				t.Errorf("notes %q", notes)
			}
			text, err := yaml.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			golden.Assert(t, string(text), name+".yaml")
		})
	}
}

func TestObjectSaysWhatIsMissing(t *testing.T) {
	all := options("application")
	all.AttachTo = map[string]string{"": "eth0"}
	for want, o := range map[string]Options{
		`"pod" is not one of the kinds bpfapplication, `: options("pod"),
		"KprobeProgram: the bytecode has the functions wake (kprobe/try_to_wake_up), woken (kretprobe/try_to_wake_up): specify one": options("kprobe"),
		`TcxProgram: the bytecode has no function "absent": it has filter (classifier), `:                                           options("tcx", "absent"),
		`TcxProgram: function count is in section "xdp", which doesn't match this kind`:                                             options("tcx", "count"),
		`BpfApplication: function sockets is in section "sockops", which doesn't match this kind`:                                   options("application", "sockets"),
		`BpfApplication: specify which function "eth0" is for: the bytecode has filter (classifier), `:                              all,
	} {
		if object, _, err := Object(content, o); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, error %v, want %q", object, err, want)
		}
	}
	nothing := object.Object{Programs: []object.Program{{Name: "sockets", Type: "sockops", Section: "sockops", Unsupported: "no"}}}
	if _, _, err := Object(nothing, options("application")); err == nil {
		t.Error("an application was made of what bpfman has no kind for")
	}
}

// An object for bytecode of others loads: what can't be loaded is left out, also one of two alternatives, and what the
// bytecode doesn't say is a placeholder that isn't attached. The notes say so.
func TestObjectOfOthers(t *testing.T) {
	unnamed := object.Object{Programs: []object.Program{{Name: "f", Type: "fentry", Section: "fentry"}, {Name: "g", Type: "fexit", Section: "fexit"}}}
	if _, notes, err := Object(unnamed, options("application")); err != nil || len(notes) != 2 || !strings.Contains(notes[0], "Replace the placeholder") {
		t.Errorf("notes %q, error %v", notes, err)
	}
	others := object.Object{
		Programs: []object.Program{
			{Name: "bare_tracepoint", Type: "tracepoint", Section: "tracepoint"},
			{Name: "measured_fentry", Type: "fentry.s", Section: "fentry.s/dummy_fentry"},
			{Name: "measured_kprobe", Type: "kprobe", Section: "kprobe/dummy_kprobe"},
			{Name: "open_fentry", Type: "fentry", Section: "fentry/do_open"},
			{Name: "open_kprobe", Type: "kprobe", Section: "kprobe/do_open"},
			{Name: "read_fexit", Type: "fexit.s", Section: "fexit.s/do_read"},
			{Name: "returned", Type: "uretprobe", Section: "uretprobe"},
			{Name: "some", Type: "kprobe", Section: "kprobe.multi/tcp_*"},
			{Name: "switched", Type: "tp_btf", Section: "tp_btf/sched_switch", Unsupported: "bpfman has no kind for it"},
		},
		Globals: []object.Variable{
			{Name: "filter", Type: "u32", Section: ".rodata", Size: 4, Default: []byte{1, 0, 0, 0}, Described: &reader.Type{Name: "__u32", Kind: reader.Unsigned, Width: 4}},
			{Name: "limits", Type: "struct limits", Section: ".rodata", Size: 8, Default: make([]byte, 8), Described: &reader.Type{Name: "struct limits"}},
			{Name: "seen", Type: "u64", Section: ".bss", Size: 8, Default: make([]byte, 8)},
		},
	}
	made, notes, err := Object(others, options("application"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(made)
	if err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, "# "+strings.Join(notes, "\n# ")+"\n"+string(text), "others.yaml")
}

// An LSM program is attached to the hook in its section. A ClusterBpfApplication can't have it, as in upstream's v0.6.
func TestHooks(t *testing.T) {
	deny := object.Program{Name: "deny", Type: "lsm", Section: "lsm.s/file_open"}
	for section, want := range map[string]string{"lsm.s/file_open": "file_open", "lsm": "hook"} {
		deny.Section = section
		made, notes, err := Object(object.Object{Programs: []object.Program{deny}}, options("lsm"))
		if err != nil {
			t.Fatal(err)
		}
		spec := made["spec"].(map[string]any) //nolint:errcheck // as Object returns it
		if made["kind"] != "LsmProgram" || spec["hook_name"] != want || len(notes) > 0 != (want == "hook") || (spec["attach"] == false) != (want == "hook") {
			t.Errorf("%s: %v, notes %q", section, made, notes)
		}
	}
	both := object.Object{Programs: []object.Program{{Name: "count", Type: "xdp", Section: "xdp"}, deny}}
	for kind, want := range map[string]int{"application": 2, linkedKind: 1} {
		made, notes, err := Object(both, options(kind))
		if err != nil {
			t.Fatal(err)
		}
		spec := made["spec"].(map[string]any)                                                            //nolint:errcheck // as Object returns it
		if programs := spec["programs"].([]any); len(programs) != want || want == 1 && len(notes) == 0 { //nolint:errcheck // as Object returns it
			t.Errorf("%s: %v, notes %q", kind, programs, notes)
		}
	}
}

func TestNames(t *testing.T) {
	long := strings.Repeat("x", 80)
	for name, want := range map[string]string{"Xdp_Pass": "xdp-pass", "__start": "start", "ns::f(int)": "ns-f-int", "ü": "program", long: long[:63]} {
		if got := nameFor([]object.Program{{Name: name}}, "r/i:t"); got != want {
			t.Errorf("%q is named %q, want %q", name, got, want)
		}
	}
}
