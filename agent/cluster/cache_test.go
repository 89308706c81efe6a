// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package cluster

import (
	"math/rand" //nolint:depguard // the fuzzer has its type
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/bpfman/bpfman-operator/apis/namespaced"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/kinds"
)

// Reading a kind that hasn't been listed is an error. After that, objects come from
// memory, as copies that the caller can change.
func TestTheCacheIsReadOnceItIsListed(t *testing.T) {
	list := `{"apiVersion":"bpfman.io/v1alpha1","kind":"XdpNsProgramList","metadata":{"resourceVersion":"7"},"items":[
		{"apiVersion":"bpfman.io/v1alpha1","kind":"XdpNsProgram","metadata":{"namespace":"a","name":"x","labels":{"is":"there"},"managedFields":[{"manager":"m"}]},"spec":{"bpffunctionname":"f"}},
		{"apiVersion":"bpfman.io/v1alpha1","kind":"XdpNsProgram","metadata":{"namespace":"a","name":"stored-by-another-version"},"spec":"text"}]}`
	c := newCluster(t, func(request *http.Request) (*http.Response, error) {
		if request.URL.Query().Get("watch") != "" {
			return answer(request, http.StatusInternalServerError, ""), nil // so that the reflector falls back to a list
		}
		return answer(request, http.StatusOK, list), nil
	})
	if _, err := c.UserObject("XdpNsProgram", "a", "x"); !kinds.Unread(err) {
		t.Errorf("before it is watched: %v", err)
	}
	if _, err := c.UserObjects("XdpNsProgram"); !kinds.Unread(err) {
		t.Errorf("before it is watched: %v", err)
	}
	listed, added := make(chan struct{}), make(chan string, 3)
	handler := toolscache.ResourceEventHandlerFuncs{AddFunc: func(o any) { added <- o.(metav1.Object).GetName() }} //nolint:errcheck // it panics
	c.Watch(t.Context(), v1alpha1.SchemeGroupVersion.WithKind("XdpNsProgram"), handler, func() { close(listed) })
	select {
	case <-listed:
	case <-time.After(30 * time.Second):
		t.Fatal("it hasn't been listed")
	}
	if len(added) != 2 {
		t.Errorf("%d objects were handled before it was listed", len(added))
	}
	for range 2 {
		o, err := c.UserObject("XdpNsProgram", "a", "x")
		if err != nil || o.GetLabels()["is"] != "there" || o.GetManagedFields() != nil {
			t.Fatalf("%+v, %v", o, err)
		}
		o.GetLabels()["is"] = "changed"
	}
	if o, err := c.UserObject("XdpNsProgram", "a", "stored-by-another-version"); err != nil || kinds.Undecodable(o) == "" {
		t.Errorf("%+v, %v", o, err)
	}
	if all, err := c.UserObjects("XdpNsProgram"); err != nil || len(all) != 2 {
		t.Errorf("%+v, %v", all, err)
	}
	for _, missing := range []struct{ kind, namespace, name string }{{"XdpNsProgram", "b", "x"}, {"XdpNsProgram", "a", "y"}, {"NoKind", "a", "x"}} {
		if _, err := c.UserObject(missing.kind, missing.namespace, missing.name); !apierrors.IsNotFound(err) {
			t.Errorf("%v: %v", missing, err)
		}
	}
}

// client-go transforms the first objects of a watch twice.
func TestTransformsAreIdempotent(t *testing.T) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	filler := fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(1), serializer.NewCodecFactory(scheme)).NilChance(0)
	for _, s := range (&Cluster{}).sources("bpfman") {
		object := s.object
		if object == nil { // one that users write
			object = namespaced.New(s.gvk.Kind, "")
		}
		for range 10 {
			filler.Fill(object)
			once, err := s.trim(object.DeepCopyObject())
			if err != nil {
				t.Fatal(err)
			}
			twice, err := s.trim(once.(runtime.Object).DeepCopyObject()) //nolint:errcheck,forcetypeassert // a panic fails the test
			if err != nil || !equality.Semantic.DeepEqual(once, twice) {
				t.Errorf("%s: %v: %+v, and then %+v", s.gvk.Kind, err, once, twice)
			}
		}
	}
}

func TestWhatIsKeptOfPods(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d", corev1.MirrorPodAnnotationKey: "uid"}}}
	pod.Spec = corev1.PodSpec{NodeName: "node", HostNetwork: true, HostPID: true, ServiceAccountName: "s"}
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, Message: "m", ContainerStatuses: []corev1.ContainerStatus{{Name: "c"}}, Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue, Message: "m"},
	}}
	if _, err := trimPod(pod); err != nil {
		t.Fatal(err)
	}
	if pod.Spec.NodeName != "node" || pod.Labels["a"] != "b" || pod.Annotations[corev1.MirrorPodAnnotationKey] != "uid" || len(pod.Status.ContainerStatuses) != 1 || pod.Status.Phase != corev1.PodRunning {
		t.Errorf("it lost what is read: %+v", pod)
	}
	if c := pod.Status.Conditions; len(c) != 1 || c[0] != (corev1.PodCondition{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue}) {
		t.Errorf("conditions %+v", c)
	}
	if len(pod.Annotations) != 1 || pod.Spec.ServiceAccountName != "" || pod.Spec.HostNetwork || pod.Spec.HostPID || pod.Status.Message != "" {
		t.Errorf("it keeps what nobody reads: %+v", pod)
	}
}
