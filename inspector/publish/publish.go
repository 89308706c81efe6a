// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package publish keeps the BpfNode of a node up to date. It writes only after changes.
package publish

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/restclient"
	"github.com/bpfman/bpfman-operator/internal/rollout"
)

// Pace limits the requests to the API server.
type Pace struct {
	// Write is the minimum interval between writes.
	Write time.Duration
	// Check is the interval, with a random deviation of up to a half, at which to read
	// the object when nothing has changed, because someone can have deleted it.
	Check time.Duration
	// Retry is the delay after a failure. It doubles each time, up to Check.
	Retry time.Duration
}

// DefaultPace results in 17 reads per second with 5,000 nodes.
var DefaultPace = Pace{Write: 10 * time.Second, Check: 5 * time.Minute, Retry: time.Second}

// deadline bounds the requests of one write.
const deadline = 30 * time.Second

// Publisher writes one BpfNode.
type Publisher struct {
	api  rest.Interface
	node string
	pace Pace
	log  *slog.Logger

	mu      sync.Mutex
	wanted  *v1alpha1.BpfNodeStatus
	changed chan struct{}

	dates   dates
	written *v1alpha1.BpfNode // as last read or written; nil if it has to be read
}

// New returns a publisher for the BpfNode of a node.
func New(config *rest.Config, node string, pace Pace, log *slog.Logger) (*Publisher, error) {
	client, err := restclient.New(config, v1alpha1.SchemeGroupVersion, v1alpha1.Install)
	if err != nil {
		return nil, err
	}
	return &Publisher{api: client, node: node, pace: pace, log: log, changed: make(chan struct{}, 1), dates: dates{}}, nil
}

// Publish makes Run write the status. If there is a newer status before the write, only
// that is written. Conditions need no times.
func (p *Publisher) Publish(status *v1alpha1.BpfNodeStatus) {
	p.mu.Lock()
	p.wanted = status
	p.mu.Unlock()
	select {
	case p.changed <- struct{}{}:
	default: // the pending notification covers this change too
	}
}

// Read returns the status in the cluster, or nil if there is none.
func (p *Publisher) Read(ctx context.Context) (*v1alpha1.BpfNodeStatus, error) {
	node, err := p.get(ctx)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &node.Status, nil
}

// Run writes the published status until the context ends.
func (p *Publisher) Run(ctx context.Context) error {
	var last, earliest time.Time // of the last write, and for the next one
	retry := p.pace.Retry
	var next <-chan time.Time
	said := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.changed:
			if wait := time.Until(earliest); wait > 0 {
				next = time.After(wait)
				continue
			}
		case <-next:
			if time.Since(last) > p.pace.Check/2 {
				p.written = nil // it can have been deleted
			}
		}
		began := time.Now()
		wrote, err := p.write(ctx)
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			wrote, err = p.write(ctx) // someone deleted or changed it in the meantime
		}
		if wrote {
			last, earliest = began, began.Add(p.pace.Write)
		}
		switch {
		case err == nil:
			retry, said = p.pace.Retry, ""
			next = time.After(p.pace.Check/2 + rand.N(p.pace.Check)) //nolint:gosec // the jitter needs no security
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the context ended
		default:
			if said != err.Error() {
				said = err.Error()
				p.log.Error("Failed to write the BpfNode; retrying", "error", err)
			}
			earliest = time.Now().Add(retry) // also for changes
			next = time.After(retry)
			retry = min(2*retry, p.pace.Check)
		}
	}
}

// write updates the object to the wanted status and its annotation, and reports whether a
// write was necessary.
func (p *Publisher) write(ctx context.Context) (bool, error) {
	p.mu.Lock()
	wanted := p.wanted
	p.mu.Unlock()
	if wanted == nil {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	wrote := false
	if p.written == nil {
		node, err := p.get(ctx)
		if apierrors.IsNotFound(err) {
			wrote = true
			node, err = p.create(ctx)
		}
		if err != nil {
			return wrote, err
		}
		p.written = node
	}
	status := wanted.DeepCopy()
	status.Conditions = p.written.Status.Conditions
	v1alpha1.SetConditions(&status.Conditions, wanted.Conditions...)
	p.dates.set(status.Conflicts, p.written.Status.Conflicts, time.Now())
	if !equality.Semantic.DeepEqual(*status, p.written.Status) {
		wrote = true
		update := p.written.DeepCopy()
		update.Status = *status
		if err := p.replace(p.update(ctx, update)); err != nil {
			return wrote, err
		}
	}
	if health := rollout.HealthOf(status).String(); p.written.Annotations[v1alpha1.AnnotationObjectHealth] != health {
		wrote = true
		return wrote, p.replace(p.annotate(ctx, health))
	}
	return wrote, nil
}

// replace sets what was written. After an error, the object was deleted, or changed by someone
// else.
func (p *Publisher) replace(written *v1alpha1.BpfNode, err error) error {
	p.written = written
	return err
}

func (p *Publisher) get(ctx context.Context) (*v1alpha1.BpfNode, error) {
	node := &v1alpha1.BpfNode{}
	if err := p.api.Get().Resource(v1alpha1.NodeKind.Resource()).Name(p.node).Do(ctx).Into(node); err != nil {
		return nil, fmt.Errorf("read BpfNode %s: %w", p.node, err)
	}
	return node, nil
}

// create creates the object without a status. Its owner is the Node.
func (p *Publisher) create(ctx context.Context) (*v1alpha1.BpfNode, error) {
	owner, err := p.owner(ctx)
	if err != nil {
		return nil, err
	}
	node := &v1alpha1.BpfNode{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: v1alpha1.NodeKind.Name},
		ObjectMeta: metav1.ObjectMeta{Name: p.node, OwnerReferences: []metav1.OwnerReference{owner}},
	}
	if err := p.api.Post().Resource(v1alpha1.NodeKind.Resource()).Body(node).Do(ctx).Into(node); err != nil {
		return nil, fmt.Errorf("create BpfNode %s: %w", p.node, err)
	}
	return node, nil
}

func (p *Publisher) update(ctx context.Context, node *v1alpha1.BpfNode) (*v1alpha1.BpfNode, error) {
	node.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: v1alpha1.NodeKind.Name}
	updated := &v1alpha1.BpfNode{}
	if err := p.api.Put().Resource(v1alpha1.NodeKind.Resource()).Name(p.node).SubResource("status").Body(node).Do(ctx).Into(updated); err != nil {
		return nil, fmt.Errorf("write the status of BpfNode %s: %w", p.node, err)
	}
	return updated, nil
}

// annotate sets the annotation for the operator, which writing the status can't.
func (p *Publisher) annotate(ctx context.Context, health string) (*v1alpha1.BpfNode, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": p.written.ResourceVersion, "annotations": map[string]string{v1alpha1.AnnotationObjectHealth: health},
	}})
	if err != nil {
		return nil, fmt.Errorf("encode the annotation of BpfNode %s: %w", p.node, err)
	}
	node := &v1alpha1.BpfNode{}
	if err := p.api.Patch(types.MergePatchType).Resource(v1alpha1.NodeKind.Resource()).Name(p.node).Body(patch).Do(ctx).Into(node); err != nil {
		return nil, fmt.Errorf("annotate BpfNode %s: %w", p.node, err)
	}
	return node, nil
}

// owner returns a reference to the Node. It requests only the Node's metadata.
func (p *Publisher) owner(ctx context.Context) (metav1.OwnerReference, error) {
	body, err := p.api.Get().AbsPath("/api/v1/nodes", p.node).
		SetHeader("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1").DoRaw(ctx)
	if err != nil {
		return metav1.OwnerReference{}, fmt.Errorf("read Node %s: %w", p.node, err)
	}
	node := metav1.PartialObjectMetadata{}
	if err := json.Unmarshal(body, &node); err != nil {
		return metav1.OwnerReference{}, fmt.Errorf("read Node %s: %w", p.node, err)
	}
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: p.node, UID: node.UID}, nil
}
