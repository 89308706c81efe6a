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

// reader reads lists of bpfman's objects with a client that decodes lists with objects that can't be decoded: see
// internal/undecodable. A user who can store such an object mustn't hide the others of its kind. Get is an error for such an
// object, because commands about one object depend on its spec.
type reader struct {
	client.Reader
	api        rest.Interface
	scheme     *runtime.Scheme
	parameters runtime.ParameterCodec
}

// List implements [client.Reader].
func (r *reader) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	resource := r.resource(into)
	if resource == "" {
		return r.Reader.List(ctx, into, options...) //nolint:wrapcheck // it adds nothing
	}
	o := (&client.ListOptions{}).ApplyOptions(options)
	request := r.api.Get().NamespaceIfScoped(o.Namespace, o.Namespace != "").Resource(resource)
	return request.VersionedParams(o.AsListOptions(), r.parameters).Do(ctx).Into(into) //nolint:wrapcheck // it says what was read
}

// resource returns the resource of which a list is, if it is one of bpfman's API, or "".
func (r *reader) resource(list client.ObjectList) string {
	types, _, err := r.scheme.ObjectKinds(list)
	if err != nil { // only the client knows it, as it does metadata
		return ""
	}
	for _, kind := range v1alpha1.AllKinds() {
		if slices.Contains(types, v1alpha1.SchemeGroupVersion.WithKind(kind.Name+"List")) {
			return kind.Resource()
		}
	}
	return ""
}
