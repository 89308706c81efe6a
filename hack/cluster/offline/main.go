// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Command offline creates the images for a kind cluster that can't pull any: see hack/kind.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/bpfman/bpfman-operator/hack/cluster/image"
	"github.com/bpfman/bpfman-operator/hack/cluster/pki"
	"github.com/bpfman/bpfman-operator/hack/cluster/registry"
)

const usage = `usage: offline [flags] command

  images FILE             write an archive of the project's images, and of the daemon's
  kubernetes-images FILE NAME…
                          write an archive of images of Kubernetes' components with the names
  certificates DIR        make a certificate authority, registry-ca.crt, and the registry's certificate
  registry DIR            serve a registry with these certificates, on the ports 443 and 5000, until stopped

flags:
`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "offline:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	var sources image.Sources
	var names string
	flags := flag.NewFlagSet("offline", flag.ExitOnError)
	flags.StringVar(&sources.Bin, "bin", "bin", "the directory of the binaries that the images are made of")
	flags.StringVar(&sources.Daemon, "daemon", "", "the bpfman daemon, bpfman-rpc")
	flags.StringVar(&sources.RegistryCA, "ca", "", "the certificate that the daemon and the agent trust besides the host's")
	flags.StringVar(&sources.Kubernetes, "kubernetes", "", "the multi-call binary of hack/kubernetes")
	flags.StringVar(&names, "names", "quay.io", "the registry's names and addresses, with commas")
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	target := flags.Arg(1)
	if target == "" {
		flags.Usage()
		return errors.New("a command and its file or directory are needed")
	}
	switch flags.Arg(0) {
	case "images":
		return write(ctx, target, image.Catalog(), sources)
	case "kubernetes-images":
		return write(ctx, target, image.Kubernetes(flags.Args()[2:]), sources)
	case "certificates":
		return certificates(target, strings.Split(names, ","))
	case "registry":
		return serve(ctx, target)
	default:
		flags.Usage()
		return fmt.Errorf("no such command: %q", flags.Arg(0))
	}
}

// write writes the images to an archive in the format of docker load and ctr import.
func write(ctx context.Context, file string, descriptions []image.Description, sources image.Sources) error {
	images := map[name.Tag]v1.Image{}
	for _, description := range descriptions {
		described, err := description.Describe(ctx, sources)
		if absent := (*image.AbsentError)(nil); description.Optional && errors.As(err, &absent) {
			continue
		}
		if err != nil {
			return err
		}
		built, err := described.Build()
		if err != nil {
			return err
		}
		tag, err := name.NewTag(described.Name)
		if err != nil {
			return fmt.Errorf("parse the image name %q: %w", described.Name, err)
		}
		images[tag] = built
	}
	if err := tarball.MultiWriteToFile(file, images); err != nil {
		return fmt.Errorf("write the images to %s: %w", file, err)
	}
	return nil
}

func certificates(dir string, names []string) error {
	authority, err := pki.NewCA("bpfman kind registry")
	if err != nil {
		return err
	}
	server, err := authority.Issue(pki.Subject{CommonName: "registry", Names: names})
	if err != nil {
		return err
	}
	if err := authority.Write(dir, "registry-ca"); err != nil {
		return err
	}
	return server.Write(dir, "registry")
}

func serve(ctx context.Context, dir string) error {
	blobs := filepath.Join(dir, "blobs")
	if err := os.MkdirAll(blobs, 0o755); err != nil {
		return fmt.Errorf("create the registry's directory: %w", err)
	}
	err := registry.Serve(ctx, registry.Options{
		Addresses: []string{":443", ":5000"},
		Blobs:     blobs,
		Cert:      filepath.Join(dir, "registry.crt"),
		Key:       filepath.Join(dir, "registry.key"),
	})
	if ctx.Err() == nil {
		return err
	}
	return nil
}
