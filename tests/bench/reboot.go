// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/eventually"
)

const (
	// rebootImage is the name of a copy of the image, which is removed from the registry.
	rebootImage = "bench-reboot"
	rebootPoll  = 50 * time.Millisecond
)

// reboot measures how long it takes until all programs are attached again after a reboot
// of the node, when the registry no longer has their image. The reboot is simulated: all
// pins and the daemon's database are removed, and the pod is replaced. The time starts
// when the new pod exists, so it includes the start of its containers.
func (b bench) reboot(ctx context.Context) (took time.Duration, err error) {
	n := sizes[len(sizes)-1]
	tag := fmt.Sprintf("%s:%d", rebootImage, time.Now().Unix())
	remove, err := b.copyImage(ctx, tag)
	if err != nil {
		return 0, err
	}
	manifest, err := b.cluster.manifest(n, besideOf(b.image, tag), b.function)
	if err != nil {
		return 0, errors.Join(err, remove(ctx))
	}
	removed := false
	_, err = b.cluster.declare(ctx, manifest, n, func(ctx context.Context) (err error) {
		before, err := b.cluster.loadedPrograms(ctx, nil)
		if err != nil {
			return err
		}
		removed = true
		if err := remove(ctx); err != nil {
			return err
		}
		start, err := b.replaceNodePod(ctx)
		if err != nil {
			return err
		}
		took, err = b.cluster.awaitReloaded(ctx, n, before, start)
		return err
	})
	if !removed {
		err = errors.Join(err, remove(context.WithoutCancel(ctx)))
	}
	return took, err
}

// besideOf returns the reference of another image in the same place.
func besideOf(image, other string) string { return path.Dir(repositoryOf(image)) + "/" + other }

// copyImage copies the image within the registry, and returns a function that removes the
// copy.
func (b bench) copyImage(ctx context.Context, tag string) (func(context.Context) error, error) {
	transport, err := b.registryTransport()
	if err != nil {
		return nil, err
	}
	from, err := name.ParseReference(b.signedAt)
	if err != nil {
		return nil, fmt.Errorf("image in the registry: %w", err)
	}
	to, err := name.NewTag(besideOf(b.signedAt, tag))
	if err != nil {
		return nil, fmt.Errorf("copy of the image: %w", err)
	}
	options := func(ctx context.Context) []remote.Option {
		return []remote.Option{remote.WithContext(ctx), remote.WithTransport(transport)}
	}
	original, err := remote.Get(from, options(ctx)...)
	if err != nil {
		return nil, fmt.Errorf("read image %s: %w", from, err)
	}
	if err := push(original, to, options(ctx)...); err != nil {
		return nil, fmt.Errorf("copy image %s to %s: %w", from, to, err)
	}
	return func(ctx context.Context) error {
		// Both exist in the registry: the tag, and the digest that it was resolved to.
		for _, reference := range []name.Reference{to, to.Digest(original.Digest.String())} {
			if err := remote.Delete(reference, options(ctx)...); err != nil {
				return fmt.Errorf("remove %s from the registry: %w", reference, err)
			}
		}
		return nil
	}, nil
}

func push(original *remote.Descriptor, to name.Tag, options ...remote.Option) error {
	if original.MediaType.IsIndex() {
		index, err := original.ImageIndex()
		if err != nil {
			return err
		}
		return remote.WriteIndex(to, index, options...)
	}
	image, err := original.Image()
	if err != nil {
		return err
	}
	return remote.Write(to, image, options...)
}

func (b bench) registryTransport() (http.RoundTripper, error) {
	if b.signedCA == "" {
		return remote.DefaultTransport, nil
	}
	certificate, err := os.ReadFile(b.signedCA)
	if err != nil {
		return nil, fmt.Errorf("read the certificate of the registry: %w", err)
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(certificate) {
		return nil, fmt.Errorf("%s has no certificate", b.signedCA)
	}
	return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}}, nil
}

// replaceNodePod removes what a reboot removes, and replaces the pod on the node. It
// returns when the new pod was seen.
func (b bench) replaceNodePod(ctx context.Context) (time.Time, error) {
	old, err := nodePod(ctx, b.cluster.client, b.cluster.node)
	if err != nil {
		return time.Time{}, err
	}
	if err := b.helper.loseState(ctx); err != nil {
		return time.Time{}, err
	}
	// The frozen containers can't end by themselves.
	if err := b.cluster.client.Delete(ctx, old, client.GracePeriodSeconds(1)); err != nil {
		return time.Time{}, errors.Join(fmt.Errorf("delete pod %s: %w", old.Name, err), b.helper.thaw(ctx))
	}
	err = eventually.Succeeds(ctx, declareTimeout, rebootPoll, func(ctx context.Context) error {
		var pods corev1.PodList
		if err := b.cluster.client.List(ctx, &pods, client.InNamespace("bpfman"), client.MatchingLabels{"name": "bpfman-daemon"}); err != nil {
			return fmt.Errorf("list bpfman's pods: %w", err)
		}
		if !slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool { return pod.Spec.NodeName == b.cluster.node && pod.UID != old.UID }) {
			return errNoNodePod
		}
		return nil
	})
	if err != nil {
		return time.Time{}, fmt.Errorf("wait for the new pod: %w", err)
	}
	return time.Now(), nil
}

// loadedPrograms returns the kernel's ids of the benchmark's programs that are loaded,
// except for those in old.
func (c cluster) loadedPrograms(ctx context.Context, old map[uint32]bool) (map[uint32]bool, error) {
	var programs v1alpha1.BpfProgramList
	if err := c.client.List(ctx, &programs); err != nil {
		return nil, fmt.Errorf("list programs: %w", err)
	}
	loaded := map[uint32]bool{}
	for _, p := range programs.Items {
		id := p.Status.ProgramID
		if strings.HasPrefix(p.Name, namePrefix) && says(p.Status.Conditions, string(v1alpha1.BpfProgCondLoaded)) && !old[id] {
			loaded[id] = true
		}
	}
	return loaded, nil
}

// awaitReloaded waits until n other programs than before are loaded.
func (c cluster) awaitReloaded(ctx context.Context, n int, before map[uint32]bool, start time.Time) (time.Duration, error) {
	err := eventually.Succeeds(ctx, declareTimeout, rebootPoll, func(ctx context.Context) error {
		loaded, err := c.loadedPrograms(ctx, before)
		if err == nil && len(loaded) < n {
			err = fmt.Errorf("%d of %d programs are loaded", len(loaded), n)
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("after a reboot: %w", err)
	}
	return time.Since(start), nil
}
