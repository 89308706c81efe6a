// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Command release creates what a release publishes, and publishes it: images, the bundle and the catalog for the Operator
// Lifecycle Manager, a bill of materials of each binary, the licenses of its modules, and krew's manifest.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/bpfman/bpfman-operator/hack/release/krew"
	"github.com/bpfman/bpfman-operator/hack/release/materials"
	"github.com/bpfman/bpfman-operator/hack/release/olm"
)

const usage = `usage: release command [flags]

  bundle    make the OLM bundle of manifests and samples, and validate it
  catalog   make the catalog of a bundle
  sbom      write a bill of materials beside each of some binaries
  licenses  collect the licenses of all that is in some binaries
  krew      make the manifest by which krew installs the archives of kubectl's plugin
  images    build the images of commands, and of bytecode
  add       put the packaged chart, the bundle, the catalog, or another project's image among the images
  names     print a sed script that gives images the names of the release, and their digests
  publish   push the images, and sign them
  notes     print the release notes, from the changelog
  latest    print whether this version gets the tag latest

To list the flags of a command, run: release command -h
`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	commands := map[string]func([]string) error{
		"bundle":   bundle,
		"catalog":  catalog,
		"sbom":     sbom,
		"licenses": licenses,
		"krew":     krewManifest,
		"images":   buildImages,
		"add":      add,
		"names":    names,
		"publish":  publish,
		"notes":    notes,
		"latest":   latest,
	}
	if len(args) == 0 || commands[args[0]] == nil {
		fmt.Fprint(os.Stderr, usage)
		return errors.New("no such command")
	}
	return commands[args[0]](args[1:])
}

func bundle(args []string) error {
	flags := flag.NewFlagSet("bundle", flag.ExitOnError)
	dir := flags.String("dir", "", "directory of the bundle")
	dockerfile := flags.String("dockerfile", "", "Dockerfile of the bundle's image")
	manifests := flags.String("manifests", "", "file with the output of kustomize for config/manifests")
	samples := flags.String("samples", "", "file with the output of kustomize for config/samples")
	channels := flags.String("channels", "", "channels of the bundle, separated by commas")
	var o olm.Options
	flags.StringVar(&o.Version, "version", "", "the version, without a v")
	flags.StringVar(&o.Replaces, "replaces", "", "name of the previous bundle")
	flags.StringVar(&o.SkipRange, "skip-range", "", "range of versions that can be upgraded directly to this one")
	flags.StringVar(&o.DefaultChannel, "default-channel", "", "default channel")
	if err := flags.Parse(args); err != nil {
		return err
	}
	o.Channels = strings.Split(*channels, ",")
	created, err := createdAt(os.Getenv("SOURCE_DATE_EPOCH"))
	if err != nil {
		return err
	}
	o.CreatedAt = created
	installed, err := readObjects(*manifests)
	if err != nil {
		return err
	}
	examples, err := readObjects(*samples)
	if err != nil {
		return err
	}
	b, err := olm.Generate(installed, examples, o)
	if err != nil {
		return fmt.Errorf("generate the bundle: %w", err)
	}
	if err := b.Write(*dir, *dockerfile); err != nil {
		return err
	}
	if err := olm.Validate(*dir); err != nil {
		// No image must be built of it.
		return errors.Join(fmt.Errorf("%s isn't valid:\n%w", *dir, err), os.Remove(*dockerfile))
	}
	return nil
}

// createdAt returns the time of a release. Without epoch, it returns none, so that a bundle doesn't depend on the
// time.
func createdAt(epoch string) (string, error) {
	if epoch == "" {
		return "", nil
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return "", fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	return time.Unix(seconds, 0).UTC().Format(time.RFC3339), nil
}

func readObjects(path string) ([]unstructured.Unstructured, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read manifests: %w", err)
	}
	defer func() { _ = file.Close() }()
	objects, err := olm.Objects(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return objects, nil
}

func catalog(args []string) error {
	flags := flag.NewFlagSet("catalog", flag.ExitOnError)
	dir := flags.String("dir", "", "the bundle's directory")
	image := flags.String("image", "", "the bundle's image")
	out := flags.String("out", "", "the catalog's file")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return olm.WriteCatalog(*dir, *image, *out)
}

func sbom(args []string) error {
	flags := flag.NewFlagSet("sbom", flag.ExitOnError)
	version := flags.String("version", "", "the binaries' version")
	if err := flags.Parse(args); err != nil {
		return err
	}
	created, err := createdAt(os.Getenv("SOURCE_DATE_EPOCH"))
	if err != nil {
		return err
	}
	return eachBinary(flags.Args(), func(binary string, modules []materials.Module) error {
		bom, err := materials.BOM(binary, *version, created, modules)
		if err != nil {
			return err
		}
		var text bytes.Buffer
		if err := materials.Encode(&text, bom); err != nil {
			return err
		}
		//nolint:gosec // everyone can read published files
		if err := os.WriteFile(binary+".cdx.json", text.Bytes(), 0o644); err != nil {
			return fmt.Errorf("write the bill of materials of %s: %w", binary, err)
		}
		return nil
	})
}

func licenses(args []string) error {
	flags := flag.NewFlagSet("licenses", flag.ExitOnError)
	out := flags.String("out", "", "the directory that they are copied to")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return eachBinary(flags.Args(), func(_ string, modules []materials.Module) error { return materials.Collect(modules, *out) })
}

func krewManifest(args []string) error {
	flags := flag.NewFlagSet("krew", flag.ExitOnError)
	version := flags.String("version", "", "the plugin's version")
	url := flags.String("url", "", "where the archives will be")
	templateFile := flags.String("template", "cli/krew.yaml", "the manifest's template")
	out := flags.String("out", "", "the manifest's file")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var archives []krew.Archive
	for _, file := range flags.Args() {
		archive, err := krew.Open(file, *version, *url)
		if err != nil {
			return err
		}
		archives = append(archives, archive)
	}
	text, err := os.ReadFile(*templateFile)
	if err != nil {
		return fmt.Errorf("read krew's template: %w", err)
	}
	manifest, err := krew.Manifest(string(text), *version, archives)
	if err != nil {
		return err
	}
	//nolint:gosec // everyone can read published files
	if err := os.WriteFile(*out, manifest, 0o644); err != nil {
		return fmt.Errorf("write krew's manifest: %w", err)
	}
	return nil
}

// eachBinary calls do with the modules of each binary.
func eachBinary(binaries []string, do func(binary string, modules []materials.Module) error) error {
	if len(binaries) == 0 {
		return errors.New("no binaries are named")
	}
	sources, err := moduleSources()
	if err != nil {
		return err
	}
	for _, binary := range binaries {
		modules, err := materials.Modules(binary, sources)
		if err == nil {
			err = do(binary, modules)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// moduleSources finds the modules' files through the go command.
func moduleSources() (materials.Sources, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	output, err := exec.CommandContext(ctx, "go", "env", "GOMODCACHE", "GOROOT").Output()
	if err != nil {
		return materials.Sources{}, fmt.Errorf("ask go for its directories: %w", err)
	}
	dirs := strings.Split(strings.TrimSpace(string(output)), "\n")
	if len(dirs) != 2 {
		return materials.Sources{}, fmt.Errorf("go env has %d directories, not two", len(dirs))
	}
	return materials.Sources{ModuleCache: dirs[0], Go: dirs[1]}, nil
}
