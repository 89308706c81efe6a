// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package load

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
	"github.com/bpfman/bpfman-operator/internal/reader"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

var described = []reader.Variable{
	{Name: "limits", Section: ".rodata", Size: 8, Type: &reader.Type{Name: "struct limits"}},
	{Name: "port", Section: ".rodata", Size: 2, Type: &reader.Type{Name: "__u16", Kind: reader.Unsigned, Width: 2}},
}

// The daemon gets bytes, and nothing is loaded if a value doesn't fit the type that the image's object says.
func TestGlobals(t *testing.T) {
	const from = ", when loading from image " + imageURL
	native := func(n uint16) []byte { return binary.NativeEndian.AppendUint16(nil, n) }
	for name, test := range map[string]struct {
		globals map[string]json.RawMessage
		data    map[string][]byte
		unknown string
		want    map[string][]byte
		err     string
	}{
		"value":          {globals: map[string]json.RawMessage{"port": json.RawMessage("8080")}, want: map[string][]byte{"port": native(8080)}},
		"value and data": {map[string]json.RawMessage{"port": json.RawMessage("8080")}, map[string][]byte{"limits": make([]byte, 8)}, "", map[string][]byte{"port": native(8080), "limits": make([]byte, 8)}, ""},
		"too large":      {globals: map[string]json.RawMessage{"port": json.RawMessage("70000")}, err: "globals.port: 70000 is too large for __u16 (0 to 65535)" + from},
		"struct":         {globals: map[string]json.RawMessage{"limits": json.RawMessage("1")}, err: "globals.limits: the type of this variable is struct limits, which has no values: set its bytes in globaldata" + from},
		"misspelled":     {globals: map[string]json.RawMessage{"prot": json.RawMessage("1")}, err: "globals.prot: the bytecode has no global variable prot; did you mean port?" + from},
		"both":           {map[string]json.RawMessage{"port": json.RawMessage("1")}, map[string][]byte{"port": native(1)}, "", nil, "globals.port: globaldata sets this variable too: remove one of both" + from},
		"unreadable":     {globals: map[string]json.RawMessage{"port": json.RawMessage("1")}, unknown: "no BTF", err: "globals can't be set, because the bytecode's variables can't be read: no BTF" + from},
		"one byte":       {data: map[string][]byte{"port": {7}}, err: "globaldata.port has 1 byte, and the variable has 2 bytes (__u16): to set a value instead of bytes, write globals: {port: 7}" + from},
		"four bytes":     {data: map[string][]byte{"limits": make([]byte, 4)}, err: "globaldata.limits has 4 bytes, and the variable has 8 bytes" + from},
		"static":         {data: map[string][]byte{"static": {1}}, want: map[string][]byte{"static": {1}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newNode(t)
				l.alter = func(a *reader.Answer) {
					if a.Object != nil {
						a.Object.Variables, a.Object.Unknown = described, test.unknown
					}
				}
				l.edit = func(o *program.Owner) { o.Globals, o.GlobalData = test.globals, maps.Clone(test.data) }
				_, err := l.settle()
				if err == nil && test.err != "" || err != nil && err.Error() != test.err {
					t.Errorf("%v, want %s", err, test.err)
				}
				var got map[string][]byte
				for _, p := range l.daemon.Programs() {
					got = p.GlobalData
				}
				if !maps.EqualFunc(got, test.want, func(a, b []byte) bool { return string(a) == string(b) }) {
					t.Errorf("the daemon has %v, want %v", got, test.want)
				}
			})
		})
	}
}

// The daemon knows what is wrong with a variable or a function, and the agent what the bytecode has.
func TestWhatTheBytecodeHas(t *testing.T) {
	for text, want := range map[string]string{
		"symbol with name prot not found in the symbols table": "symbol with name prot not found in the symbols table, when loading f from image " + imageURL + "; did you mean port?",
		`global variable "prot" not found in program`:          `global variable "prot" not found in program, when loading f from image ` + imageURL + "; did you mean port?",
		"BpfProgramError(UnexpectedProgramType)":               "the section of the function is for another type of program, when loading f from image " + imageURL + "; f is in section kprobe/do_unlinkat",
		"symbol with name xyz not found in the symbols table":  "symbol with name xyz not found in the symbols table, when loading f from image " + imageURL,
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newNode(t)
			l.alter = func(a *reader.Answer) {
				if a.Object != nil {
					a.Object.Variables = described
					a.Object.Functions = []reader.Function{{Name: "f", Section: "kprobe/do_unlinkat"}, {Name: "g", Section: "xdp"}}
				}
			}
			l.daemon.Fault = func(call string, _ proto.Message, before bool) error {
				if call == "Load" && before {
					return status.Error(codes.Aborted, text)
				}
				return nil
			}
			if _, err := l.settle(); err == nil || err.Error() != want {
				t.Errorf("%v, want %s", err, want)
			}
		})
	}
}

// A request names the variables that several of its functions use, and no others.
func TestUnsharedVariables(t *testing.T) {
	shared := []reader.SharedVariable{{Name: "hits", Functions: []string{"closed", "opened"}}, {Name: "last", Functions: []string{"closed", "other"}}}
	for many := range 4 {
		shared = append(shared, reader.SharedVariable{Name: fmt.Sprintf("v%d", many), Functions: []string{"a", "b", "c", "d", "e", "f"}})
	}
	for functions, want := range map[string]string{
		"opened":        "",
		"opened closed": "hits (closed, opened)",
		"other opened":  "",
		"a b c d e f":   "v0 (a, b, c, d, and 2 more), v1 (a, b, c, d, and 2 more), v2 (a, b, c, d, and 2 more), and 1 more",
	} {
		request := &gobpfman.LoadRequest{Metadata: map[string]string{}}
		for name := range strings.FieldsSeq(functions) {
			request.Info = append(request.Info, &gobpfman.LoadInfo{Name: name})
		}
		noteUnshared(request, shared)
		if got := request.GetMetadata()[v1alpha1.MetadataUnshared]; got != want || want == "" && len(request.GetMetadata()) > 0 {
			t.Errorf("%s: %q, want %q", functions, got, want)
		}
	}
}

// The reports of functions that use one variable say so over a daemon that doesn't share it, even after a restart of the agent.
func TestUnsharedVariablesAreKnown(t *testing.T) {
	for name, c := range map[string]struct {
		create func(root string) *daemontest.Daemon
		want   string
	}{
		"shared":     {daemontest.New, ""},
		"not shared": {daemontest.NewGo, "hits (a, b)"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newNode(t)
				l.daemon = c.create(t.TempDir())
				l.Inventory = daemon.NewInventory(l.daemon, "")
				l.alter = func(a *reader.Answer) {
					if a.Object != nil {
						a.Object.Shared = []reader.SharedVariable{{Name: "hits", Functions: []string{"a", "b"}}}
					}
				}
				app := &v1alpha1.BpfApplication{ObjectMeta: metav1.ObjectMeta{Name: "app", UID: "uid"}}
				app.Spec.ByteCode.Image = &v1alpha1.BytecodeImage{Url: imageURL}
				for _, function := range []string{"a", "b"} {
					member := v1alpha1.BpfApplicationProgram{Type: v1alpha1.ProgTypeTracepoint, Tracepoint: &v1alpha1.TracepointProgramInfo{Names: []string{"syscalls/sys_enter_kill"}}}
					member.Tracepoint.BpfFunctionName = function
					app.Spec.Programs = append(app.Spec.Programs, member)
				}
				owner := program.OwnerOf("BpfApplication", app)
				l.edit = func(o *program.Owner) { *o = owner }
				refresh := func() {
					if _, err := l.Inventory.Refresh(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				refresh()
				if _, err := l.settle(); err != nil {
					t.Fatal(err)
				}
				for range 2 {
					programs := l.Inventory.Of(owner.Key)
					if len(programs) != 2 || programs[0].Unshared != c.want || programs[1].Unshared != c.want {
						t.Errorf("%+v, want %q", programs, c.want)
					}
					l.Inventory = daemon.NewInventory(l.daemon, "")
					refresh()
				}
			})
		})
	}
}
