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

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/bpfman/bpfman-operator/hack/cluster/component"
	"github.com/bpfman/bpfman-operator/hack/cluster/image"
	"github.com/bpfman/bpfman-operator/hack/cluster/node"
)

// loadImages builds the images and loads those that the node doesn't have.
func (c cluster) loadImages(ctx context.Context) error {
	if err := component.Wait(ctx, c.containerdReady); err != nil {
		return err
	}
	for _, description := range image.Catalog() {
		described, err := description.Describe(ctx, c.sources)
		if absent := (*image.AbsentError)(nil); errors.As(err, &absent) {
			fmt.Printf("         image %s skipped: %s is not built\n", description.Name, absent.File)
			continue
		}
		if err != nil {
			return err
		}
		if err := c.loadImage(ctx, described); err != nil {
			return err
		}
	}
	return nil
}

// loadImage loads the image unless that very image was loaded before.
func (c cluster) loadImage(ctx context.Context, described image.Image) error {
	built, err := described.Build()
	if err != nil {
		return err
	}
	digest, err := built.Digest()
	if err != nil {
		return fmt.Errorf("digesting %s: %w", described.Name, err)
	}
	record := c.settings.Dir("images", url.PathEscape(described.Name))
	want := digest.String() + " " + image.NextTag
	if loaded, err := os.ReadFile(record); err == nil && string(loaded) == want {
		return nil
	}
	return step("image "+described.Name, func() error {
		if err := c.importImage(ctx, described.Name, built); err != nil {
			return err
		}
		if err := os.WriteFile(record, []byte(want), 0o644); err != nil {
			return fmt.Errorf("recording that %s is loaded: %w", described.Name, err)
		}
		return nil
	})
}

// importImage streams the image, under its name and as the next one, to the node's containerd.
func (c cluster) importImage(ctx context.Context, reference string, built v1.Image) error {
	tag, err := name.NewTag(reference)
	if err != nil {
		return fmt.Errorf("parsing the image name %q: %w", reference, err)
	}
	next := tag.Context().Tag(image.NextTag)
	reader, writer := io.Pipe()
	go func() {
		writer.CloseWithError(tarball.MultiWrite(map[name.Tag]v1.Image{tag: built, next: built}, writer))
	}()
	command := c.ctr(ctx, "images", "import", "-")
	command.Stdin = reader
	output, err := command.CombinedOutput()
	reader.CloseWithError(err)
	if err != nil {
		return fmt.Errorf("importing %s: %w: %s", reference, err, output)
	}
	return nil
}

func (c cluster) containerdReady(ctx context.Context) error {
	if output, err := c.ctr(ctx, "version").CombinedOutput(); err != nil {
		return fmt.Errorf("asking containerd for its version: %w: %s", err, output)
	}
	return nil
}

// ctr is a command of containerd's client, talking to the node's containerd.
func (c cluster) ctr(ctx context.Context, args ...string) *exec.Cmd {
	socket := "/run/containerd/containerd.sock"
	if state := node.Load(c.stateDir); state != nil {
		socket = filepath.Join(state.Root(), socket)
	}
	return exec.CommandContext(ctx, "ctr", append([]string{"--address", socket, "--namespace", "k8s.io"}, args...)...)
}
