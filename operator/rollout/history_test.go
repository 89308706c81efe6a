// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/rollout"
)

// A recorder records revisions of one object, which differ in their function.
type recorder struct {
	t       *testing.T
	history *History
	object  *v1alpha1.TcxProgram
}

func newRecorder(t *testing.T, object *v1alpha1.TcxProgram, funcs interceptor.Funcs) *recorder {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := appsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).Build(), funcs)
	return &recorder{t, &History{Client: c, Reader: c, Namespace: "bpfman"}, object}
}

func (r *recorder) record(function string, keep int64) (v1alpha1.RecordedRevision, error) {
	r.t.Helper()
	r.object.Spec.BpfFunctionName = function
	revision, err := rollout.RevisionOf(r.object)
	if err != nil {
		r.t.Fatal(err)
	}
	return r.history.Record(r.t.Context(), "TcxProgram", r.object, revision, keep)
}

// is records a revision, and checks its number.
func (r *recorder) is(function string, keep, want int64) {
	r.t.Helper()
	if got, err := r.record(function, keep); err != nil || got.Number != want {
		r.t.Fatalf("%s is revision %d, want %d; %v", function, got.Number, want, err)
	}
}

func (r *recorder) stored() []appsv1.ControllerRevision {
	r.t.Helper()
	var all appsv1.ControllerRevisionList
	if err := r.history.Reader.List(r.t.Context(), &all); err != nil {
		r.t.Fatal(err)
	}
	return all.Items
}

func flows() *v1alpha1.TcxProgram {
	return &v1alpha1.TcxProgram{ObjectMeta: metav1.ObjectMeta{Name: "flows", UID: "uid", Generation: 1}}
}

// Numbers are as those of a DaemonSet: a revision that returns gets the next number.
func TestNumbersOfRevisions(t *testing.T) {
	r := newRecorder(t, flows(), interceptor.Funcs{})
	r.is("a", 0, 1)
	r.is("a", 0, 1)
	r.is("b", 1, 2)
	r.is("b", 1, 2)
	r.object.Generation = 3
	r.is("a", 2, 3)
	r.is("b", 3, 4)
	r.is("c", 4, 5)
	if n := len(r.stored()); n != 3 {
		t.Errorf("%d revisions are stored", n)
	}
	for _, c := range r.stored() {
		if returned := c.Annotations[v1alpha1.AnnotationReturnedIn]; (returned == "3") != (c.Revision < 5) {
			t.Errorf("revision %d has returned in generation %q", c.Revision, returned)
		}
	}
	for number, function := range map[int64]string{3: "a", 4: "b", 5: "c", 1: ""} {
		got, err := r.history.Revision(t.Context(), r.object, number)
		if err != nil || (got != nil) != (function != "") {
			t.Fatalf("revision %d: %v, %v", number, got, err)
		}
		if got == nil {
			continue
		}
		parsed, err := rollout.Parse(got.Object.Raw)
		if err != nil || got.Revision != number || !strings.Contains(string(parsed.Spec), `"bpffunctionname":"`+function+`"`) {
			t.Errorf("revision %d is %d, %s, %v", number, got.Revision, parsed.Spec, err)
		}
	}
}

// Ten revisions are kept, and always the one that nodes run.
func TestOldRevisionsAreDeleted(t *testing.T) {
	r := newRecorder(t, flows(), interceptor.Funcs{})
	for n := range int64(15) {
		r.is(string(rune('a'+n)), 2, n+1)
	}
	var numbers []int64
	for _, c := range r.stored() {
		numbers = append(numbers, c.Revision)
	}
	slices.Sort(numbers)
	if want := []int64{2, 7, 8, 9, 10, 11, 12, 13, 14, 15}; !slices.Equal(numbers, want) {
		t.Errorf("kept %d, want %d", numbers, want)
	}
}

// The object owns its revisions, so they are deleted with it. Those of others, and of a former object of the same name, aren't
// its own.
func TestOwnersOfRevisions(t *testing.T) {
	for namespace, want := range map[string]string{"": "bpfman", "tenant": "tenant"} {
		o := flows()
		o.Namespace, o.Name = namespace, strings.Repeat("a", 229)+".b"
		r := newRecorder(t, o, interceptor.Funcs{})
		r.is("a", 0, 1)
		c := r.stored()[0]
		owner := metav1.GetControllerOf(&c)
		if c.Namespace != want || !strings.HasPrefix(c.Name, strings.Repeat("a", 229)+"-") || owner == nil || owner.UID != "uid" || owner.Name != o.Name {
			t.Errorf("%+v", c.ObjectMeta)
		}
		forged := c.DeepCopy()
		forged.Name, forged.ResourceVersion, forged.Revision, forged.OwnerReferences = "forged", "", 7, nil
		if err := r.history.Client.Create(t.Context(), forged); err != nil {
			t.Fatal(err)
		}
		r.is("b", 1, 2)
		if got, err := r.history.Revision(t.Context(), o, 7); got != nil || err != nil {
			t.Errorf("a revision of nobody is the object's: %v, %v", got, err)
		}
		o.UID = "another"
		r.is("a", 0, 1)
	}
}

// Without its record, a revision isn't rolled out.
func TestRevisionsThatCannotBeRecorded(t *testing.T) {
	refused := errors.New("refused")
	for name, test := range map[string]struct {
		funcs  interceptor.Funcs
		before []string
		last   string
	}{
		"list": {interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return refused }}, nil, "a"},
		"create": {interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			return refused
		}}, nil, "a"},
		"update": {interceptor.Funcs{Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error {
			return refused
		}}, []string{"a", "b"}, "a"},
		"delete": {interceptor.Funcs{Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
			return refused
		}}, []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}, "k"},
	} {
		r := newRecorder(t, flows(), test.funcs)
		for n, function := range test.before {
			r.is(function, int64(n), int64(n)+1)
		}
		if _, err := r.record(test.last, int64(len(test.before))); !errors.Is(err, refused) {
			t.Errorf("%s: %v", name, err)
		}
		if name != "list" {
			continue
		}
		if _, err := r.history.Revision(t.Context(), r.object, 1); !errors.Is(err, refused) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Others than the operator can write ControllerRevisions in a namespace, as many as they like. The operator reads a few.
func TestRevisionsOfOthersAreBounded(t *testing.T) {
	r := newRecorder(t, flows(), interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
		if err := c.List(ctx, list, options...); err != nil {
			return err
		}
		of, all := (&client.ListOptions{}).ApplyOptions(options), list.(*appsv1.ControllerRevisionList) //nolint:forcetypeassert,errcheck // nothing else is listed
		if n := int(of.Limit); n > 0 && len(all.Items) > n {                                            // as the API server does
			all.Items, all.Continue = all.Items[:n], "more"
		}
		return nil
	}})
	r.is("a", 0, 1)
	first := r.stored()[0]
	for n := range maxListed {
		another := first.DeepCopy()
		another.Name, another.ResourceVersion, another.Labels[v1alpha1.LabelRevisionHash] = fmt.Sprintf("another-%d", n), "", ""
		if n == maxListed-2 {
			r.is("b", 1, 2)
			if got, err := r.history.Revision(t.Context(), r.object, 1); got == nil || err != nil {
				t.Errorf("the first revision is %v: %v", got, err)
			}
		}
		if err := r.history.Client.Create(t.Context(), another); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.record("c", 1); !errors.Is(err, ErrTooMany) {
		t.Errorf("recorded with %d others: %v", maxListed, err)
	}
	if _, err := r.history.Revision(t.Context(), r.object, 1); !errors.Is(err, ErrTooMany) {
		t.Errorf("read with %d others: %v", maxListed, err)
	}
}
