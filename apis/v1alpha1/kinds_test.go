// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v1alpha1

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// The tables and the generated registration must contain the same kinds.
func TestKindsAreRegistered(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := Install(scheme); err != nil {
		t.Fatal(err)
	}
	var listed []string
	all := AllKinds()
	for _, kind := range StateKinds {
		all = append(all, ofObjects(kind.Kind))
	}
	for _, kind := range all {
		listed = append(listed, kind.Name)
		if got := reflect.TypeOf(kind.New()).Elem().Name(); got != kind.Name {
			t.Errorf("%s: New returns a %s", kind.Name, got)
		}
		if got := reflect.TypeOf(kind.NewList()).Elem().Name(); got != kind.Name+"List" {
			t.Errorf("%s: NewList returns a %s", kind.Name, got)
		}
		if resource := kind.Resource(); resource != strings.ToLower(kind.Name)+"s" && !strings.HasSuffix(resource, "policies") {
			t.Errorf("%s: resource %s", kind.Name, resource)
		}
	}

	var registered []string
	for kind, goType := range scheme.KnownTypes(SchemeGroupVersion) {
		if goType.PkgPath() == reflect.TypeFor[XdpProgram]().PkgPath() && !strings.HasSuffix(kind, "List") {
			registered = append(registered, kind)
		}
	}
	slices.Sort(listed)
	slices.Sort(registered)
	if len(listed) == 0 || !slices.Equal(listed, registered) {
		t.Errorf("the tables list %v, the scheme knows %v", listed, registered)
	}
}

func TestUserObjects(t *testing.T) {
	for _, kind := range UserKinds {
		t.Run(kind.Name, func(t *testing.T) {
			object := kind.New()
			path := "/bytecode/pass.o"
			common := BpfAppCommon{
				GlobalData:   map[string][]byte{"answer": {42}},
				Globals:      map[string]json.RawMessage{"port": json.RawMessage("8080")},
				NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
				ByteCode: BytecodeSelector{Path: &path, Image: &BytecodeImage{
					Url: "u", ImagePullPolicy: PullNever, ImagePullSecret: &ImagePullSecretSelector{Name: "n", Namespace: "ns"},
				}},
			}
			object.SetAppCommon(common)
			if got := object.GetAppCommon(); !reflect.DeepEqual(got, common) {
				t.Errorf("GetAppCommon() = %+v, want %+v", got, common)
			}
			object.GetStatus().Nodes = &NodeCounts{Selected: 1}
			text, err := json.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			globals := map[bool]string{true: "globalData", false: "globaldata"}[kind.Name == "ClusterBpfApplication"]
			for _, want := range []string{`"` + globals + `":{"answer":"Kg=="}`, `"globals":{"port":8080}`, `"nodes":{"selected":1,"attached":0,"idle":0,"failed":0}`} {
				if !strings.Contains(string(text), want) {
					t.Errorf("%s lacks %s", text, want)
				}
			}
			if got := kind.GroupVersionKind(); got != SchemeGroupVersion.WithKind(kind.Name) {
				t.Errorf("GroupVersionKind() = %v", got)
			}
		})
	}
}

func TestProgramObjects(t *testing.T) {
	for _, kind := range ProgramKinds {
		t.Run(kind.Name, func(t *testing.T) {
			object := kind.New()
			object.GetSpec().Type = "tcx"
			object.GetStatus().Node = "node-1"
			text, err := json.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			if want := `"spec":{"type":"tcx"},"status":{"node":"node-1"}`; !strings.Contains(string(text), want) {
				t.Errorf("%s lacks %s", text, want)
			}
		})
	}
}

// A Go client must not write fields that nobody has set. They would change the object's
// generation, and hide what the user meant.
func TestNoNoiseOnTheWire(t *testing.T) {
	path := "/bytecode/pass.o"
	common := BpfAppCommon{ByteCode: BytecodeSelector{Path: &path}}
	program := BpfProgramCommon{BpfFunctionName: "pass"}
	const head = `"metadata":{},"spec":{"bpffunctionname":"pass",`
	const tail = `"nodeselector":{},"bytecode":{"path":"/bytecode/pass.o"}}`

	for _, test := range []struct {
		object runtime.Object
		want   string
	}{
		{
			&XdpProgram{Spec: XdpProgramSpec{BpfAppCommon: common, XdpProgramInfo: XdpProgramInfo{BpfProgramCommon: program}}},
			head + `"interfaceselector":{},"priority":0,` + tail,
		},
		{
			&UprobeProgram{Spec: UprobeProgramSpec{BpfAppCommon: common, UprobeProgramInfo: UprobeProgramInfo{BpfProgramCommon: program, Target: "libc"}}},
			head + `"target":"libc",` + tail,
		},
		{&BpfApplication{}, `"metadata":{}`},
	} {
		text, err := json.Marshal(test.object)
		if err != nil {
			t.Fatal(err)
		}
		if string(text) != "{"+test.want+"}" {
			t.Errorf("%T: got\n%s, want\n{%s}", test.object, text, test.want)
		}
		unstructured, err := runtime.DefaultUnstructuredConverter.ToUnstructured(test.object)
		if err != nil {
			t.Fatal(err)
		}
		var want map[string]any
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
		gotText, err := json.Marshal(unstructured)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal(gotText, &got); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%T as unstructured: got %v, want %v", test.object, got, want)
		}
	}
}

// Upstream's manifests write globals as lists of integers. A Go client can read such a
// list, if no other Go client has written the object before.
func TestGlobalDataForms(t *testing.T) {
	for _, text := range []string{`{"globaldata":{"v":"DQwL"}}`, `{"globaldata":{"v":[13,12,11]}}`} {
		var common BpfAppCommon
		if err := json.Unmarshal([]byte(text), &common); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if got := common.GlobalData["v"]; !slices.Equal(got, []byte{13, 12, 11}) {
			t.Errorf("%s: got %v", text, got)
		}
	}
}

// Code that was written for upstream's Go types compiles. These are the fields that such
// code sets.
var _ = XdpProgram{
	ObjectMeta: metav1.ObjectMeta{Name: "x"},
	Spec: XdpProgramSpec{
		BpfAppCommon: BpfAppCommon{
			NodeSelector: metav1.LabelSelector{},
			GlobalData:   map[string][]byte{},
			ByteCode:     BytecodeSelector{Image: &BytecodeImage{Url: "", ImagePullPolicy: PullAlways, ImagePullSecret: &ImagePullSecretSelector{Name: "", Namespace: ""}}},
		},
		XdpProgramInfo: XdpProgramInfo{
			BpfProgramCommon:  BpfProgramCommon{BpfFunctionName: "", MapOwnerSelector: metav1.LabelSelector{}},
			InterfaceSelector: InterfaceSelector{Interfaces: &[]string{}, PrimaryNodeInterface: new(bool)},
			Containers:        &ContainerSelector{Namespace: "", Pods: metav1.LabelSelector{}, ContainerNames: &[]string{}},
			Priority:          0,
			ProceedOn:         []XdpProceedOnValue{"pass"},
		},
	},
	Status: XdpProgramStatus{BpfProgramStatusCommon: BpfProgramStatusCommon{Conditions: []metav1.Condition{BpfProgCondLoaded.Condition()}}},
}
