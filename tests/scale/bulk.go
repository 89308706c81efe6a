// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"regexp"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// store writes reports to etcd in the API server's storage format, which fills a large cluster in minutes. The API
// server receives them through its watch of etcd, like the writes of another API server.
type store struct {
	etcd *clientv3.Client
	// samples are the stored reports of one node, by their names.
	node    string
	samples []sample
}

type sample struct {
	owner, report int
	object        v1alpha1.ProgramObject
	stored        []byte
}

// puts is the maximum number of concurrent writes.
const puts = 32

// openStore reads the stored reports of a node, which were written through the API server.
func openStore(ctx context.Context, c *controlPlane, r *reporter, node string) (*store, error) {
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{c.etcdURL}, Context: ctx})
	if err != nil {
		return nil, fmt.Errorf("connect to etcd: %w", err)
	}
	s := &store{etcd: etcd, node: node}
	for n, owner := range r.owners {
		for i, object := range reportsOf(owner, n, node) {
			if err := r.live.Get(ctx, keyOf(object), object); err != nil {
				return nil, fmt.Errorf("get report %s: %w", object.GetName(), err)
			}
			stored, err := s.get(ctx, object.GetName())
			if err != nil {
				return nil, err
			}
			s.samples = append(s.samples, sample{n, i, object, stored})
		}
	}
	return s, nil
}

func (s *store) close() error {
	if err := s.etcd.Close(); err != nil {
		return fmt.Errorf("close the connection to etcd: %w", err)
	}
	return nil
}

func storedAt(name string) string { return "/registry/bpfman.io/bpfprograms/" + name }

func (s *store) get(ctx context.Context, name string) ([]byte, error) {
	answer, err := s.etcd.Get(ctx, storedAt(name))
	if err != nil {
		return nil, fmt.Errorf("get %s of etcd: %w", storedAt(name), err)
	}
	if len(answer.Kvs) != 1 {
		return nil, fmt.Errorf("get %s of etcd: %d keys", storedAt(name), len(answer.Kvs))
	}
	return answer.Kvs[0].Value, nil
}

// of returns the stored form of a report of another node.
func (s *store) of(from sample, r *reporter, node, uid string) (name string, value []byte) {
	name = reportsOf(r.owners[from.owner], from.owner, node)[from.report].GetName()
	value = bytes.ReplaceAll(from.stored, []byte(from.object.GetName()), []byte(name))
	value = bytes.ReplaceAll(value, []byte(s.node), []byte(node))
	return name, bytes.ReplaceAll(value, []byte(from.object.GetUID()), []byte(uid))
}

var timestamp = regexp.MustCompile(`"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"`)

// check compares what it would write for a node with what the API server has stored for it. Only times can differ.
func (s *store) check(ctx context.Context, r *reporter, node string) error {
	for _, from := range s.samples {
		object := reportsOf(r.owners[from.owner], from.owner, node)[from.report]
		if err := r.live.Get(ctx, keyOf(object), object); err != nil {
			return fmt.Errorf("get report %s: %w", object.GetName(), err)
		}
		name, made := s.of(from, r, node, string(object.GetUID()))
		stored, err := s.get(ctx, name)
		if err != nil {
			return err
		}
		if at := timestamp.FindIndex(stored); at == nil {
			return fmt.Errorf("report %s is stored in another form: %s", name, stored)
		}
		if !bytes.Equal(timestamp.ReplaceAll(made, nil), timestamp.ReplaceAll(stored, nil)) {
			return fmt.Errorf("report %s is stored as\n%s\nand not as\n%s", name, stored, made)
		}
	}
	return nil
}

// nodes writes all reports of the nodes from first to last, each in a separate transaction. Objects of one
// transaction have the same version, and a watch that resumes from a version skips all objects with it.
func (s *store) nodes(ctx context.Context, r *reporter, first, last int) error {
	writing, ctx := errgroup.WithContext(ctx)
	writing.SetLimit(puts)
	for i := first; i < last; i++ {
		writing.Go(func() error {
			for _, from := range s.samples {
				name, value := s.of(from, r, nodeName(i), uuid.NewString())
				if _, err := s.etcd.Put(ctx, storedAt(name), string(value)); err != nil {
					return fmt.Errorf("put report %s into etcd: %w", name, err)
				}
			}
			return nil
		})
	}
	return writing.Wait()
}

// seen waits until the API server knows all reports of a node in etcd.
func (s *store) seen(ctx context.Context, c *controlPlane, r *reporter, node string) error {
	for n, owner := range r.owners {
		for _, object := range reportsOf(owner, n, node) {
			err := poll(ctx, "the API server to see report "+object.GetName(), settleTimeout, func(ctx context.Context) (bool, error) {
				err := c.core.RESTClient().Get().AbsPath("/apis", v1alpha1.GroupVersion.String(), "bpfprograms", object.GetName()).
					Param("resourceVersion", "0").Do(ctx).Error()
				return err == nil, client.IgnoreNotFound(err)
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// bytesPerReport returns the mean size of a report in etcd, including its key.
func (s *store) bytesPerReport() float64 {
	var sum float64
	for _, from := range s.samples {
		sum += float64(len(from.stored) + len(storedAt(from.object.GetName())))
	}
	return sum / float64(len(s.samples))
}
