// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package operator

import (
	"math/rand" //nolint:depguard // the fuzzer has its type
	"testing"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/equality"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// client-go transforms the first objects of a watch twice. An object that differs after that looks changed after each
// start of the operator.
func TestTransformsAreIdempotent(t *testing.T) {
	options := cacheOptions(runtime.NewScheme(), "bpfman", true)
	transforms := map[client.Object]func(any) (any, error){}
	for _, kind := range v1alpha1.AllKinds() {
		if o, ok := kind.New().(client.Object); ok {
			transforms[o] = options.DefaultTransform
		}
	}
	for o, by := range options.ByObject {
		transforms[o] = options.DefaultTransform
		if by.Transform != nil {
			transforms[o] = by.Transform
		}
	}
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	filler := fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(1), serializer.NewCodecFactory(scheme)).NilChance(0)
	for o, transform := range transforms {
		for range 10 {
			filler.Fill(o)
			o.SetAnnotations(map[string]string{v1alpha1.AnnotationRestartedAt: "now", v1alpha1.AnnotationRolloutPaused: "true", "other": "value"})
			once, err := transform(o.DeepCopyObject())
			if err != nil {
				t.Fatal(err)
			}
			twice, err := transform(once.(runtime.Object).DeepCopyObject()) //nolint:errcheck,forcetypeassert // a panic fails the test
			if err != nil || !equality.Semantic.DeepEqual(once, twice) {
				t.Errorf("%T: %v: %+v, and then %+v", o, err, once, twice)
			}
		}
	}
}
