// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package apiserver

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
)

// readable returns the version at which a request that accepts a resource version is answered.
func (s *Server) readable(caller caller, wanted string) (uint64, error) {
	atLeast, err := versioner.ParseResourceVersion(wanted)
	if err != nil {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: %v", err))
	}
	if atLeast > s.version {
		return 0, storage.NewTooLargeResourceVersionError(atLeast, s.version, 1)
	}
	if wanted == "" || caller.asOf == 0 {
		return s.version, nil // the most recent version
	}
	return max(caller.asOf, atLeast, s.compacted), nil
}

// GetList implements [storage.Interface].
func (r *resource) GetList(ctx context.Context, prefix string, options storage.ListOptions, list runtime.Object) error {
	if options.Recursive && !strings.HasSuffix(prefix, "/") {
		prefix += "/"
	}
	if options.ResourceVersion == "0" && options.ResourceVersionMatch == "" {
		options.Predicate.Limit = 0 // a watch cache ignores it
	}
	caller := callerOf(ctx)
	items, version, err := caller.server.list(caller, r, prefix, options)
	if err != nil {
		return err
	}
	var kept []runtime.Object
	var last string
	var remaining int64
	limit := int(options.Predicate.Limit)
	for i, item := range items {
		if limit > 0 && len(kept) == limit {
			remaining = int64(len(items) - i)
			break
		}
		last = item.key
		matches, err := options.Predicate.Matches(item.object.Object)
		if err != nil {
			return fmt.Errorf("select %s: %w", item.key, err)
		}
		if matches {
			if r.custom { // handlers only read them
				kept = append(kept, item.object.Object)
			} else {
				kept = append(kept, r.show(item.object))
			}
		}
	}
	next, left, err := storage.PrepareContinueToken(last, prefix, int64(version), int64(len(items)), remaining > 0, options) //nolint:gosec // versions are small
	if err != nil {
		return fmt.Errorf("make a token to continue: %w", err)
	}
	if left != nil {
		left = &remaining
	}
	if err := setItems(list, kept); err != nil {
		return err
	}
	return versioner.UpdateList(list, version, next, left)
}

type item struct {
	key    string
	object *stored
}

// list returns the objects below a prefix from the point where a list continues, and their version.
func (s *Server) list(caller caller, r *resource, prefix string, options storage.ListOptions) ([]item, uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	exact, from, err := storage.ValidateListOptions(prefix, versioner, options)
	if err != nil {
		return nil, 0, err
	}
	version := uint64(exact) //nolint:gosec // it isn't negative
	switch {
	case version > s.version:
		return nil, 0, storage.NewTooLargeResourceVersionError(version, s.version, 1)
	case version != 0 && version < s.compacted:
		return nil, 0, expired(options, prefix, from)
	case version == 0 && options.Predicate.Continue != "":
		version = s.version
	case version == 0:
		if version, err = s.readable(caller, options.ResourceVersion); err != nil {
			return nil, 0, err
		}
	}
	c := s.at(r.prefix, version)
	at, _ := slices.BinarySearch(c.keys, max(prefix, from))
	var items []item
	for _, k := range c.keys[at:] {
		if !options.Recursive && k != prefix || !strings.HasPrefix(k, prefix) {
			break
		}
		items = append(items, item{k, c.objects[k]})
	}
	return items, version, nil
}

// expired is the answer to a list of a version that is compacted. A client can continue a list with the current version.
func expired(options storage.ListOptions, prefix, from string) error {
	if options.Predicate.Continue == "" {
		return apierrors.NewResourceExpired("The resourceVersion for the provided list is too old.")
	}
	inconsistent, err := storage.EncodeContinue(from, prefix, -1)
	if err != nil {
		return apierrors.NewResourceExpired("The provided continue parameter is too old.")
	}
	status := apierrors.NewResourceExpired("The provided continue parameter is too old " +
		"to display a consistent list result. You can start a new list without " +
		"the continue parameter, or use the continue token in this response to " +
		"retrieve the remainder of the results. Continuing with the provided " +
		"token results in an inconsistent list - objects that were created, " +
		"modified, or deleted between the time the first chunk was returned " +
		"and now may show up in the list.")
	status.ErrStatus.ListMeta = metav1.ListMeta{Continue: inconsistent}
	return status
}

// setItems sets the items of a list.
func setItems(list runtime.Object, objects []runtime.Object) error {
	if u, ok := list.(*unstructured.UnstructuredList); ok {
		u.Items = make([]unstructured.Unstructured, 0, len(objects))
		for _, o := range objects {
			u.Items = append(u.Items, *o.(*unstructured.Unstructured)) //nolint:errcheck,forcetypeassert // it panics
		}
		return nil
	}
	pointer, err := meta.GetItemsPtr(list)
	if err != nil {
		return fmt.Errorf("the items of %T: %w", list, err)
	}
	items := reflect.ValueOf(pointer).Elem()
	items.Set(reflect.MakeSlice(items.Type(), 0, len(objects)))
	for _, o := range objects {
		items.Set(reflect.Append(items, reflect.ValueOf(o).Elem()))
	}
	return nil
}
