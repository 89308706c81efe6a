// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"golang.org/x/mod/semver"
	"sigs.k8s.io/yaml"

	"github.com/bpfman/bpfman-operator/hack/cluster/image"
	"github.com/bpfman/bpfman-operator/hack/release/images"
	"github.com/bpfman/bpfman-operator/hack/release/materials"
)

// common are the flags of the commands for images.
type common struct {
	images.Release
	flags                 *flag.FlagSet
	layout, architectures string
}

func newCommon(name string) *common {
	c := &common{flags: flag.NewFlagSet(name, flag.ExitOnError)}
	c.flags.StringVar(&c.layout, "layout", "", "the directory that collects the images")
	c.flags.StringVar(&c.Registry, "registry", "", "the registry, and the path that all names start with")
	c.flags.StringVar(&c.Version, "version", "", "the version, without a v")
	c.flags.StringVar(&c.Source, "source", "", "the repository's address")
	c.flags.StringVar(&c.Revision, "revision", "", "the commit")
	c.flags.StringVar(&c.architectures, "architectures", "", "Go's names of the architectures, separated by spaces")
	return c
}

func (c *common) parse(args []string) error {
	if err := c.flags.Parse(args); err != nil {
		return err
	}
	if !semver.IsValid("v"+c.Version) || semver.Build("v"+c.Version) != "" {
		return fmt.Errorf("%q isn't a version such as 1.2.3 or 1.2.3-rc.1", c.Version)
	}
	// The module apis needs another path for a second major version.
	if major := semver.Major("v" + c.Version); major != "v0" && major != "v1" {
		return fmt.Errorf("version %s: first change the path of the module apis to …/apis/%s, or go get refuses it", c.Version, major)
	}
	if c.Registry == "" || strings.Contains(c.Registry, "//") || c.Registry != strings.ToLower(c.Registry) {
		return fmt.Errorf("%q isn't a registry such as ghcr.io/example", c.Registry)
	}
	if c.Revision == "" {
		return errors.New("the commit is unknown: a release is built from a git clone that this user owns")
	}
	c.Architectures = strings.Fields(c.architectures)
	created, err := createdAt(os.Getenv("SOURCE_DATE_EPOCH"))
	if err == nil && created != "" {
		c.Created, err = time.Parse(time.RFC3339, created)
	}
	return err
}

func (c *common) tags() *string {
	return c.flags.String("tags", "", "the tags of all versions, which decide whether this version gets the tag latest")
}

// put builds an image, and adds it to the layout.
func put[T mutate.Appendable](layout images.Layout, name string, build func() (T, error)) error {
	content, err := build()
	if err != nil {
		return err
	}
	return layout.Put(name, content)
}

func buildImages(args []string) error {
	c := newCommon("images")
	bin := c.flags.String("bin", "", "the directory with a directory of binaries for each architecture")
	examples := c.flags.String("bytecode", "", "the examples whose bytecode is published, or alias=example, separated by spaces")
	if err := c.parse(args); err != nil {
		return err
	}
	layout, err := images.Open(c.layout)
	if err != nil {
		return err
	}
	sources, err := moduleSources()
	if err != nil {
		return err
	}
	for _, command := range image.Published {
		err := put(layout, c.Name(command.Repository), func() (mutate.Appendable, error) {
			return c.Command(command, *bin, func(dir string) (fs.FS, error) { return c.materials(command, dir, sources) })
		})
		if err != nil {
			return err
		}
	}
	for example := range strings.FieldsSeq(*examples) {
		alias, object, aliased := strings.Cut(example, "=")
		if !aliased {
			object = alias
		}
		err := put(layout, c.BytecodeName(alias), func() (mutate.Appendable, error) {
			return c.Bytecode(filepath.Join(*bin, "bytecode", object+".o"), filepath.Join(*bin, "bytecode-big-endian", object+".o"))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// materials writes the bill of materials of a command's image, and returns the licenses of everything in it.
func (c *common) materials(command image.Command, dir string, sources materials.Sources) (fs.FS, error) {
	var all []materials.Module
	known := map[string]bool{}
	for _, name := range append([]string{command.Binary}, command.Others...) {
		modules, err := materials.Modules(filepath.Join(dir, name), sources)
		if err != nil {
			return nil, err
		}
		for _, m := range modules {
			if !known[m.Path] {
				all, known[m.Path] = append(all, m), true
			}
		}
	}
	bom, err := materials.BOM(filepath.Join(dir, command.Binary), c.Version, c.Created.Format(time.RFC3339), all)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	if err := materials.Encode(&text, bom); err != nil {
		return nil, err
	}
	path := images.BillOfMaterials(filepath.Dir(dir), strings.TrimPrefix(filepath.Base(dir), "linux-"), command)
	if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil { //nolint:gosec // everyone can read published files
		return nil, fmt.Errorf("write the bill of materials of an image: %w", err)
	}
	texts := filepath.Join(dir, "image-"+command.Repository+".licenses")
	if err := os.RemoveAll(texts); err != nil {
		return nil, fmt.Errorf("remove former licenses: %w", err)
	}
	return os.DirFS(texts), materials.Collect(all, texts)
}

func add(args []string) error {
	c := newCommon("add")
	chart := c.flags.String("chart", "", "the packaged chart")
	bundle := c.flags.String("bundle", "", "the bundle's directory")
	catalog := c.flags.String("catalog", "", "the catalog's directory")
	base := c.flags.String("base", "", "the image with opm, which serves the catalog")
	other := c.flags.String("other", "", "the name of another project's image")
	if err := c.parse(args); err != nil {
		return err
	}
	layout, err := images.Open(c.layout)
	if err != nil {
		return err
	}
	switch {
	case *chart != "":
		packaged, err := os.ReadFile(*chart)
		if err != nil {
			return fmt.Errorf("read the chart: %w", err)
		}
		return put(layout, c.ChartName(), func() (mutate.Appendable, error) { return c.Chart(packaged) })
	case *bundle != "":
		text, err := os.ReadFile(filepath.Join(*bundle, "metadata/annotations.yaml"))
		if err != nil {
			return fmt.Errorf("read the bundle: %w", err)
		}
		var metadata struct {
			Annotations map[string]string `json:"annotations"`
		}
		if err := yaml.Unmarshal(text, &metadata); err != nil {
			return fmt.Errorf("read the bundle's annotations: %w", err)
		}
		return put(layout, c.Name("bpfman-operator-bundle"), func() (mutate.Appendable, error) {
			return c.Data("bpfman-operator-bundle", map[string]fs.FS{"/": os.DirFS(*bundle)}, metadata.Annotations)
		})
	case *other != "":
		return put(layout, *other, func() (mutate.Appendable, error) {
			content, err := images.Base(context.Background(), *other)
			if err != nil {
				return nil, err
			}
			return c.Copy(content)
		})
	case *catalog != "":
		labels := map[string]string{"operators.operatorframework.io.index.configs.v1": "/configs"}
		return put(layout, c.Name("bpfman-operator-catalog"), func() (mutate.Appendable, error) {
			content, err := images.Base(context.Background(), *base)
			if err != nil {
				return nil, err
			}
			return c.DataOn(content, "bpfman-operator-catalog", map[string]fs.FS{"/": os.DirFS(*catalog)}, labels, []string{"/bin/opm"}, []string{"serve", "/configs"})
		})
	}
	return errors.New("specify --chart, --bundle, --catalog, or --other")
}

func names(args []string) error {
	c := newCommon("names")
	others := map[string]string{}
	c.flags.Func("other", "NAME=REFERENCE: another image that the manifests name, which gets its digest; may be repeated", func(value string) error {
		name, reference, ok := strings.Cut(value, "=")
		others[name] = reference
		if !ok {
			return errors.New("specify NAME=REFERENCE")
		}
		return nil
	})
	if err := c.parse(args); err != nil {
		return err
	}
	var all []images.Named
	if c.layout != "" {
		layout, err := images.Open(c.layout)
		if err != nil {
			return err
		}
		if all, err = layout.All(); err != nil {
			return err
		}
	}
	for name, reference := range others {
		digest, err := images.WithDigest(context.Background(), reference)
		if err != nil {
			return err
		}
		others[name] = digest
	}
	_, err := fmt.Print(c.Names(all, others))
	return err
}

func publish(args []string) error {
	c := newCommon("publish")
	var p images.Publisher
	flags := c.flags.String("cosign-flags", "", "flags for signing, separated by spaces")
	tags := c.tags()
	c.flags.StringVar(&p.Cosign, "cosign", "cosign", "the command")
	c.flags.StringVar(&p.Bin, "bin", "", "the directory with a directory of binaries for each architecture")
	c.flags.StringVar(&p.Provenance, "provenance", "", "the file to write the provenance to")
	if err := c.parse(args); err != nil {
		return err
	}
	layout, err := images.Open(c.layout)
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(images.Provenance(c.Release, os.Getenv), "", "  ")
	if err != nil {
		return fmt.Errorf("encode the provenance: %w", err)
	}
	if err := os.WriteFile(p.Provenance, text, 0o644); err != nil { //nolint:gosec // everyone can read it
		return fmt.Errorf("write the provenance: %w", err)
	}
	p.Layout, p.Flags, p.Out = layout, strings.Fields(*flags), os.Stdout
	p.Latest = images.IsLatest(c.Version, strings.Fields(*tags))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return p.Publish(ctx)
}

func notes(args []string) error {
	c := newCommon("notes")
	changelog := c.flags.String("changelog", "CHANGELOG.md", "the changelog")
	unreleased := c.flags.Bool("unreleased", false, "use the section Unreleased if the version has none")
	if err := c.parse(args); err != nil {
		return err
	}
	text, err := os.ReadFile(*changelog)
	if err != nil {
		return fmt.Errorf("read the changelog: %w", err)
	}
	section, err := c.Notes(string(text), *unreleased)
	if err != nil {
		return err
	}
	_, err = fmt.Print(section)
	return err
}

func latest(args []string) error {
	c := newCommon("latest")
	tags := c.tags()
	if err := c.parse(args); err != nil {
		return err
	}
	_, err := fmt.Println(images.IsLatest(c.Version, strings.Fields(*tags)))
	return err
}
