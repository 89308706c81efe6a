// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Command bytecode-images builds a bytecode image from each eBPF object in a directory,
// and pushes the images to a registry.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/partial"

	"github.com/bpfman/bpfman-operator/cli/bytecodeimage"
)

type options struct {
	objects string
	push    string
	ca      string
	prefix  string
	tag     string
	aliases map[string]string
	timeout time.Duration
}

func main() {
	opts := options{aliases: map[string]string{}}
	flag.StringVar(&opts.objects, "objects", "bin/bytecode", "directory of the compiled objects (*.o)")
	flag.StringVar(&opts.push, "push", "", "registry to push to, as host[:port]")
	flag.StringVar(&opts.ca, "ca", "", "file of the certificate authority to trust for the registry; the system's by default")
	flag.StringVar(&opts.prefix, "prefix", "bpfman-bytecode", "path under which the images are pushed")
	flag.StringVar(&opts.tag, "tag", "latest", "tag of the images")
	flag.DurationVar(&opts.timeout, "timeout", 2*time.Minute, "time limit for all pushes together")
	flag.Func("alias", "push an object's image under another name too, as alias=object; may be repeated", func(value string) error {
		alias, object, ok := strings.Cut(value, "=")
		if !ok || alias == "" || object == "" {
			return errors.New("want alias=object")
		}
		opts.aliases[alias] = object
		return nil
	})
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, opts); err != nil {
		fmt.Fprintln(os.Stderr, "bytecode-images:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, opts options) error {
	if opts.push == "" {
		return errors.New("--push names no registry")
	}
	ctx, cancel := context.WithTimeout(ctx, opts.timeout)
	defer cancel()
	images, err := imagesOf(opts)
	if err != nil {
		return err
	}
	registries, err := bytecodeimage.NewRegistries(opts.ca)
	if err != nil {
		return err
	}
	for _, image := range slices.Sorted(maps.Keys(images)) {
		reference := fmt.Sprintf("%s/%s/%s:%s", opts.push, opts.prefix, image, opts.tag)
		if _, err := registries.Push(ctx, reference, images[image]); err != nil {
			return err
		}
		fmt.Println("pushed", reference)
	}
	return nil
}

// imagesOf builds the image of each object. The keys are the names to push.
func imagesOf(opts options) (map[string]partial.WithRawManifest, error) {
	paths, err := filepath.Glob(filepath.Join(opts.objects, "*.o"))
	if err != nil {
		return nil, fmt.Errorf("list objects in %s: %w", opts.objects, err)
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("no object in %s: run `make bytecode` first", opts.objects)
	}
	images := map[string]partial.WithRawManifest{}
	for _, path := range paths {
		object, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read object: %w", err)
		}
		file := filepath.Base(path)
		img, err := bytecodeimage.Build([]bytecodeimage.File{{Name: file, Content: object}}, time.Time{})
		if err != nil {
			return nil, err
		}
		images[strings.TrimSuffix(file, ".o")] = img
	}
	for alias, object := range opts.aliases {
		img, ok := images[object]
		if !ok {
			return nil, fmt.Errorf("alias %s: no object %s in %s", alias, object, opts.objects)
		}
		images[alias] = img
	}
	return images, nil
}
