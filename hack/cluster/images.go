// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/sync/errgroup"

	"github.com/bpfman/bpfman-operator/hack/cluster/component"
	"github.com/bpfman/bpfman-operator/hack/cluster/image"
	"github.com/bpfman/bpfman-operator/hack/cluster/node"
)

// loadImages builds the images, and loads those that nodes don't have.
func (c cluster) loadImages(ctx context.Context) error { return c.loadImagesOn(ctx, c.nodes()) }

func (c cluster) loadImagesOn(ctx context.Context, nodes []component.Settings) error {
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(s component.Settings) bool {
		return !s.RunsPods() || !node.Load(s.StateDir).Alive()
	})
	if len(nodes) == 0 {
		return nil
	}
	for _, s := range nodes {
		if err := component.Wait(ctx, func(ctx context.Context) error { return containerdReady(ctx, s) }); err != nil {
			return err
		}
	}
	for _, description := range image.Catalog() {
		described, err := description.Describe(ctx, c.sources)
		if absent := (*image.AbsentError)(nil); errors.As(err, &absent) {
			if description.Optional {
				continue
			}
			fmt.Printf("         image %s skipped: %s is not built\n", description.Name, absent.File)
			continue
		}
		if err != nil {
			return err
		}
		if err := loadImage(ctx, described, nodes); err != nil {
			return err
		}
	}
	return nil
}

// loadImage loads the image on the nodes, unless the same image was loaded before.
func loadImage(ctx context.Context, described image.Image, nodes []component.Settings) error {
	built, err := described.Build()
	if err != nil {
		return err
	}
	digest, err := built.Digest()
	if err != nil {
		return fmt.Errorf("digest %s: %w", described.Name, err)
	}
	want := digest.String() + " " + image.NextTag
	record := func(s component.Settings) string { return s.Dir("images", url.PathEscape(described.Name)) }
	missing := slices.DeleteFunc(slices.Clone(nodes), func(s component.Settings) bool {
		loaded, err := os.ReadFile(record(s))
		return err == nil && string(loaded) == want
	})
	if len(missing) == 0 {
		return nil
	}
	return step("image "+described.Name, func() error {
		group, ctx := errgroup.WithContext(ctx)
		for _, s := range missing {
			group.Go(func() error {
				if err := importImage(ctx, s, described.Name, built); err != nil {
					return err
				}
				if err := os.WriteFile(record(s), []byte(want), 0o644); err != nil {
					return fmt.Errorf("record that %s is loaded: %w", described.Name, err)
				}
				return nil
			})
		}
		return group.Wait()
	})
}

// importImage streams the image to the node's containerd, under its names.
func importImage(ctx context.Context, s component.Settings, reference string, built v1.Image) error {
	names, err := image.Names(reference)
	if err != nil {
		return err
	}
	images := map[name.Tag]v1.Image{}
	for _, tag := range names {
		images[tag] = built
	}
	reader, writer := io.Pipe()
	go func() {
		writer.CloseWithError(tarball.MultiWrite(images, writer))
	}()
	command := ctr(ctx, s, "images", "import", "-")
	command.Stdin = reader
	output, err := command.CombinedOutput()
	reader.CloseWithError(err)
	if err != nil {
		return fmt.Errorf("import %s on node %s: %w: %s", reference, s.Node, err, output)
	}
	return nil
}

func containerdReady(ctx context.Context, s component.Settings) error {
	if output, err := ctr(ctx, s, "version").CombinedOutput(); err != nil {
		return fmt.Errorf("ask containerd of node %s for its version: %w: %s", s.Node, err, output)
	}
	return nil
}

// ctr returns a command of containerd's client for the node's containerd.
func ctr(ctx context.Context, s component.Settings, args ...string) *exec.Cmd {
	socket := "/run/containerd/containerd.sock"
	if state := node.Load(s.StateDir); state != nil {
		socket = filepath.Join(state.Root(), socket)
	}
	return exec.CommandContext(ctx, "ctr", append([]string{"--address", socket, "--namespace", "k8s.io"}, args...)...)
}
