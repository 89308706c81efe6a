// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package liststream lists and watches objects for a reflector, and decodes them one at a time, as they arrive. Its
// callers keep a record of each object, which is smaller than the object. So they never have hundreds of megabytes of
// objects in memory.
package liststream

import (
	"context"
	"fmt"
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
)

// Lax are the options for objects from an API server, which has validated them, but possibly with an earlier schema.
var Lax = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// Metadata identifies an object and its version.
type Metadata struct {
	Name            string            `json:"name"`
	Namespace       string            `json:"namespace"`
	ResourceVersion string            `json:"resourceVersion"`
	Annotations     map[string]string `json:"annotations"`
}

// Decode returns the record of an object in JSON, and its metadata.
type Decode[R runtime.Object] func(object jsontext.Value) (R, Metadata, error)

// New returns a source of records for a reflector. A reflector only lists if the API server doesn't send all objects
// as the first events of a watch. With hundreds of thousands of objects, a single list takes the API server about as
// long as its request timeout, and pages take longer. [Record] returns the record of what a reflector stores.
func New[R runtime.Object](api rest.Interface, resource string, codec runtime.ParameterCodec, decode Decode[R]) *toolscache.ListWatch {
	request := func(o metav1.ListOptions) *rest.Request {
		return api.Get().Resource(resource).VersionedParams(&o, codec).
			// Without compression: for hundreds of megabytes, it would take the API server a long time.
			SetHeader("Accept-Encoding", "identity")
	}
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.Limit = 0
			body, err := request(o).Stream(ctx)
			if err != nil {
				return nil, err //nolint:wrapcheck // the caller compares it
			}
			defer body.Close()
			return DecodeList(body, decode)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch, o.AllowWatchBookmarks = true, true
			body, err := request(o).Stream(ctx)
			if err != nil {
				return nil, err //nolint:wrapcheck // as above
			}
			reporter := apierrors.NewClientErrorReporter(http.StatusInternalServerError, http.MethodGet, "ClientWatchDecoding")
			return watch.NewStreamWatcher(DecodeEvents(body, decode), reporter), nil
		},
	}
}

// Record returns the record in an item that a reflector stores, or in the object of an event.
func Record[R runtime.Object](item any) (R, error) {
	switch item := item.(type) {
	case R: // from a list
		return item, nil
	case *object[R]: // from a watch
		return item.record, nil
	default:
		var none R
		return none, fmt.Errorf("%T is not a %T", item, none)
	}
}

// Event returns the object of an event, as a watch has it.
func Event[R runtime.Object](record R, m Metadata) runtime.Object {
	return &object[R]{
		record: record, name: m.Name, namespace: m.Namespace, version: m.ResourceVersion,
		last: m.Annotations[metav1.InitialEventsAnnotationKey] == "true",
	}
}

// object is the object in an event of a watch. A reflector only needs its methods. At the start, the reflector keeps
// one for each object.
type object[R runtime.Object] struct {
	metav1.Object // nil

	record                   R
	name, namespace, version string
	// last marks the bookmark after the initial events of the watch.
	last bool
}

func (o *object[R]) GetName() string            { return o.name }
func (o *object[R]) GetNamespace() string       { return o.namespace }
func (o *object[R]) GetResourceVersion() string { return o.version }

func (o *object[R]) GetAnnotations() map[string]string {
	if o.last {
		return map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return nil
}

// GetObjectKind implements [runtime.Object].
func (o *object[R]) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements [runtime.Object].
func (o *object[R]) DeepCopyObject() runtime.Object {
	copied := *o
	return &copied
}
