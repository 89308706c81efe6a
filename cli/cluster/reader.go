// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package cluster

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// reader reads bpfman's objects with a client that decodes lists with objects that can't be decoded: see
// internal/undecodable. A user who can store such an object mustn't hide the others of its kind.
type reader struct {
	client.Reader
	api        rest.Interface
	scheme     *runtime.Scheme
	parameters runtime.ParameterCodec
}

// Get implements [client.Reader].
func (r *reader) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	resource := r.resource(into, "")
	if resource == "" {
		return r.Reader.Get(ctx, key, into, options...) //nolint:wrapcheck // it adds nothing
	}
	o := (&client.GetOptions{}).ApplyOptions(options)
	request := r.api.Get().NamespaceIfScoped(key.Namespace, key.Namespace != "").Resource(resource).Name(key.Name)
	return request.VersionedParams(o.AsGetOptions(), r.parameters).Do(ctx).Into(into) //nolint:wrapcheck // it says what was read
}

// List implements [client.Reader].
func (r *reader) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	resource := r.resource(into, "List")
	if resource == "" {
		return r.Reader.List(ctx, into, options...) //nolint:wrapcheck // it adds nothing
	}
	o := (&client.ListOptions{}).ApplyOptions(options)
	request := r.api.Get().NamespaceIfScoped(o.Namespace, o.Namespace != "").Resource(resource)
	return request.VersionedParams(o.AsListOptions(), r.parameters).Do(ctx).Into(into) //nolint:wrapcheck // it says what was read
}

// resource returns the resource of a kind of bpfman's API whose Go type has a suffix, or "".
func (r *reader) resource(o runtime.Object, suffix string) string {
	types, _, err := r.scheme.ObjectKinds(o)
	if err != nil { // only the client knows it, as it does metadata
		return ""
	}
	for _, kind := range v1alpha1.AllKinds() {
		if slices.Contains(types, v1alpha1.SchemeGroupVersion.WithKind(kind.Name+suffix)) {
			return kind.Resource()
		}
	}
	return ""
}
