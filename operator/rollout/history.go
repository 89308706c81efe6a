// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package rollout

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/rollout"
)

// maxRevisions is the number of an object's revisions that are kept, as of a DaemonSet.
const maxRevisions = 10

// maxListed is the number of an object's revisions that are read. Others than the operator can write ControllerRevisions of a namespace, of
// 1.5 MiB each, and the operator of the whole cluster must not run out of memory.
const maxListed = 2 * maxRevisions

// ErrTooMany means that an object has more revisions than are read.
var ErrTooMany = fmt.Errorf("the object has more than %d ControllerRevisions, of which the operator keeps %d: delete the others", maxListed, maxRevisions)

// History keeps the revisions of user objects in ControllerRevisions, which the objects own. Those of cluster-scoped
// objects are in the operator's namespace.
type History struct {
	Client client.Client
	// Reader reads without a cache: a revision is only read when an object changes.
	Reader    client.Reader
	Namespace string
}

// Record makes a revision the newest one of an object. It removes the oldest ones, except for keep.
func (h *History) Record(ctx context.Context, kind string, o v1alpha1.UserObject, revision rollout.Revision, keep int64) (v1alpha1.RecordedRevision, error) {
	all, err := h.list(ctx, o)
	if err != nil {
		return v1alpha1.RecordedRevision{}, err
	}
	hash, newest := revision.Hash(), int64(0)
	if len(all) > 0 {
		newest = all[len(all)-1].Revision
	}
	if i := slices.IndexFunc(all, func(c appsv1.ControllerRevision) bool { return c.Labels[v1alpha1.LabelRevisionHash] == hash }); i >= 0 {
		found := &all[i]
		if found.Revision < newest {
			found.Revision = newest + 1
			metav1.SetMetaDataAnnotation(&found.ObjectMeta, v1alpha1.AnnotationReturnedIn, strconv.FormatInt(revision.Metadata.Generation, 10))
			if err := h.Client.Update(ctx, found); err != nil {
				return v1alpha1.RecordedRevision{}, fmt.Errorf("update ControllerRevision %s: %w", found.Name, err)
			}
		}
		return v1alpha1.RecordedRevision{Number: found.Revision, Hash: hash}, nil
	}
	stored, err := json.Marshal(revision)
	if err != nil {
		return v1alpha1.RecordedRevision{}, fmt.Errorf("encode a revision of %s %s: %w", kind, o.GetName(), err)
	}
	created := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: h.namespace(o),
			// The hash includes the object's UID, so names of two objects differ.
			Name:   strings.TrimRight(o.GetName()[:min(len(o.GetName()), maxName)], "-.") + "-" + hash,
			Labels: map[string]string{v1alpha1.LabelRevisionOf: string(o.GetUID()), v1alpha1.LabelRevisionHash: hash},
			// It doesn't set blockOwnerDeletion: on OpenShift, that takes the right to update the finalizers of user objects.
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: kind, Name: o.GetName(), UID: o.GetUID(), Controller: new(true),
			}},
		},
		Data: runtime.RawExtension{Raw: stored}, Revision: newest + 1,
	}
	if err := h.Client.Create(ctx, created); err != nil {
		return v1alpha1.RecordedRevision{}, fmt.Errorf("create ControllerRevision %s: %w", created.Name, err)
	}
	return v1alpha1.RecordedRevision{Number: created.Revision, Hash: hash}, h.prune(ctx, all, keep)
}

// maxName is the length of an object's name in that of its ControllerRevisions, so that the hash fits.
const maxName = 230

func (h *History) prune(ctx context.Context, all []appsv1.ControllerRevision, keep int64) error {
	others := slices.DeleteFunc(slices.Clone(all), func(c appsv1.ControllerRevision) bool { return c.Revision == keep })
	for i := range min(max(0, len(all)+1-maxRevisions), len(others)) {
		if err := h.Client.Delete(ctx, &others[i]); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete ControllerRevision %s: %w", others[i].Name, err)
		}
	}
	return nil
}

// Revision returns the revision of an object with a number. It returns nil if it doesn't exist.
func (h *History) Revision(ctx context.Context, o v1alpha1.UserObject, number int64) (*v1alpha1.RolloutRevision, error) {
	all, err := h.list(ctx, o)
	if err != nil {
		return nil, err
	}
	for _, c := range all {
		if c.Revision == number {
			return &v1alpha1.RolloutRevision{Revision: number, Object: c.Data}, nil
		}
	}
	return nil, nil
}

// list returns the revisions of an object, by number.
func (h *History) list(ctx context.Context, o v1alpha1.UserObject) ([]appsv1.ControllerRevision, error) {
	var list appsv1.ControllerRevisionList
	selected := client.MatchingLabels{v1alpha1.LabelRevisionOf: string(o.GetUID())}
	err := h.Reader.List(ctx, &list, client.InNamespace(h.namespace(o)), selected, client.Limit(maxListed))
	if err == nil && list.Continue != "" {
		err = ErrTooMany
	}
	if err != nil {
		return nil, fmt.Errorf("list ControllerRevisions of %s: %w", o.GetName(), err)
	}
	owned := slices.DeleteFunc(list.Items, func(c appsv1.ControllerRevision) bool { return !metav1.IsControlledBy(&c, o) })
	slices.SortFunc(owned, func(a, b appsv1.ControllerRevision) int { return cmp.Compare(a.Revision, b.Revision) })
	return owned, nil
}

func (h *History) namespace(o v1alpha1.UserObject) string {
	if o.GetNamespace() != "" {
		return o.GetNamespace()
	}
	return h.Namespace
}
