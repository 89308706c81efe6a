// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package kinds

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

func decoder(tb testing.TB) runtime.Decoder {
	tb.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.Install(scheme); err != nil {
		tb.Fatal(err)
	}
	codecs := serializer.WithoutConversionCodecFactory{CodecFactory: serializer.NewCodecFactory(scheme)}
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	return lenient{codecs, scheme}.DecoderToVersion(info.Serializer, v1alpha1.SchemeGroupVersion)
}

func uprobe(name, spec, status string) string {
	return `{"apiVersion":"bpfman.io/v1alpha1","kind":"UprobeProgram","metadata":{"name":"` + name + `","uid":"u-` + name +
		`","generation":2,"annotations":{"a":"b"}},"spec":` + spec + `,"status":` + status + `}`
}

const goodStatus = `{"conditions":[{"type":"ReconcileError","status":"True","reason":"ReconcileError","message":"m","lastTransitionTime":null}]}`

func TestDecodeAList(t *testing.T) {
	list := `{"apiVersion":"bpfman.io/v1alpha1","kind":"UprobeProgramList","metadata":{"resourceVersion":"77","continue":"next"},"items":[` +
		strings.Join([]string{
			uprobe("good", `{"offset":4,"target":"libc"}`, `{}`),
			uprobe("negative", `{"offset":-1,"target":"libc"}`, goodStatus),
			uprobe("spec-of-text", `"text"`, `{}`),
			uprobe("status-too", `{"offset":-1}`, `{"conditions":7}`),
			uprobe("last", `{"target":"libz"}`, `{}`),
		}, ",") + `]}`
	var into v1alpha1.UprobeProgramList
	if _, _, err := decoder(t).Decode([]byte(list), nil, &into); err != nil {
		t.Fatal(err)
	}
	if into.ResourceVersion != "77" || into.Continue != "next" || len(into.Items) != 5 {
		t.Fatalf("list %+v", into.ListMeta)
	}
	for i, want := range []struct{ name, problem, target string }{
		{"good", "", "libc"},
		{"negative", "cannot unmarshal number -1", ""},
		{"spec-of-text", "cannot unmarshal string", ""},
		{"status-too", "cannot unmarshal number", ""},
		{"last", "", "libz"},
	} {
		o := &into.Items[i]
		problem := Undecodable(o)
		if o.Name != want.name || string(o.UID) != "u-"+want.name || o.Generation != 2 || (problem == "") != (want.problem == "") || !strings.Contains(problem, want.problem) {
			t.Errorf("%s: %q, want %q", o.Name, problem, want.problem)
		}
		if o.Spec.Target != want.target || o.Spec.Offset > 4 {
			t.Errorf("%s: spec %+v", o.Name, o.Spec)
		}
		if o.Annotations["a"] != "b" {
			t.Errorf("%s: annotations %v", o.Name, o.Annotations)
		}
	}
	if c := into.Items[1].Status.Conditions; len(c) != 1 || c[0].Message != "m" {
		t.Errorf("the status is lost: %+v", c)
	}
}

func TestDecodeAnEvent(t *testing.T) {
	object, _, err := decoder(t).Decode([]byte(uprobe("negative", `{"offset":-1}`, goodStatus)), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	o, ok := object.(*v1alpha1.UprobeProgram)
	if !ok || o.Name != "negative" || Undecodable(o) == "" || len(o.Status.Conditions) != 1 {
		t.Errorf("%+v", object)
	}
	TrimAnnotations(o)
	if Undecodable(o) == "" || len(o.Annotations) != 1 {
		t.Errorf("annotations %v", o.Annotations)
	}
}

func TestWhatIsNoObject(t *testing.T) {
	for _, data := range []string{
		``, `7`, `{}`, `{"apiVersion":"bpfman.io/v1alpha1","kind":"Unknown"}`,
		`{"apiVersion":"bpfman.io/v1alpha1","kind":"UprobeProgram","metadata":{"name":7}}`,
	} {
		if o, _, err := decoder(t).Decode([]byte(data), nil, nil); err == nil {
			t.Errorf("%s: %+v", data, o)
		}
	}
}

// Decoding ends for any input, and returns objects with names, or an error.
func FuzzDecode(f *testing.F) {
	f.Add(`{"offset":-1,"target":"libc"}`, goodStatus)
	f.Add(`"text"`, `[]`)
	f.Add(`{"globaldata":{"a":[1,"x"]}}`, `{"nodes":{"selected":-1}}`)
	d := decoder(f)
	f.Fuzz(func(t *testing.T, spec, status string) {
		object, _, err := d.Decode([]byte(uprobe("x", spec, status)), nil, nil)
		if err != nil {
			return
		}
		if o, ok := object.(metav1.Object); !ok || o.GetName() == "" {
			t.Errorf("%s, %s: %+v", spec, status, object)
		}
	})
}
