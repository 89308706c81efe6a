// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"archive/tar"
	"cmp"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/bytecode/object"
	"github.com/bpfman/bpfman-operator/cli/bytecodeimage"
	"github.com/bpfman/bpfman-operator/cli/cluster"
	"github.com/bpfman/bpfman-operator/cli/manifest"
	"github.com/bpfman/bpfman-operator/cli/output"
	"github.com/bpfman/bpfman-operator/cli/terminal"
)

func imageCommand(connect cluster.Connect) *cobra.Command {
	command := &cobra.Command{
		Use:   "image",
		Short: "Build, push, and inspect bytecode images",
		Args:  cobra.NoArgs,
	}
	command.AddCommand(imageBuildCommand(), imagePushCommand(), imageInspectCommand(connect))
	return command
}

const filesHelp = `Object file, compiled for BPF, or directory with the files that bpf2go generates for different platforms, or executable or library that contains an object. An object file is used for all architectures with its byte order, and an executable for its architecture, unless you specify it as PLATFORM=FILE. The platforms bpfel and bpfeb are all architectures with one byte order. The platforms amd64, arm64, ppc64le, riscv64, and s390x are one architecture, and take precedence over its byte order.`

const imageBuildExample = `  # Build an archive from one object, for all architectures with its byte order
  kubectl bpfman image build -f counter.o -o counter.tar

  # Build it from the objects that bpf2go generates
  kubectl bpfman image build -f bpfel=counter_bpfel.o -f bpfeb=counter_bpfeb.o -o counter.tar

  # Build it with a file for each architecture, as probes that read registers need it
  kubectl bpfman image build -f amd64=counter_x86_bpfel.o -f arm64=counter_arm64_bpfel.o -o counter.tar

  # Build it from the object in an installed tool, for the architecture of the tool
  kubectl bpfman image build -f /usr/sbin/syscount -o syscount.tar`

func imageBuildCommand() *cobra.Command {
	var files []string
	var out string
	command := &cobra.Command{
		Use:   "build -f [PLATFORM=]FILE -o PATH",
		Short: "Build a bytecode image as an OCI layout",
		Long: `Build an image from which bpfman loads eBPF programs, and write it as an OCI layout: to a tar archive, or to a directory if the path is a directory or ends with a slash.

Debug sections of the objects are left out, because neither bpfman nor the kernel uses them; BTF is kept. The same files result in the same digest. The image has no creation time, unless SOURCE_DATE_EPOCH is set. The digest is written to standard output.`,
		Example: imageBuildExample,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			image, created, err := build(files)
			if err != nil {
				return err
			}
			if err := warn(c.ErrOrStderr(), image); err != nil {
				return err
			}
			if err := bytecodeimage.WriteLayout(out, image, created); err != nil {
				return err
			}
			digest, err := partial.Digest(image)
			if err != nil {
				return fmt.Errorf("digest of the image: %w", err)
			}
			return printLine(c.OutOrStdout(), digest.String())
		},
	}
	command.Flags().StringArrayVarP(&files, "filename", "f", nil, filesHelp)
	command.Flags().StringVarP(&out, "output", "o", "", "Archive or directory to write to.")
	_ = command.MarkFlagRequired("filename") // these fail only for unknown flags
	_ = command.MarkFlagRequired("output")
	return command
}

// build builds an image from the files in flags.
func build(flags []string) (partial.WithRawManifest, time.Time, error) {
	created, err := sourceDate(os.Getenv("SOURCE_DATE_EPOCH"))
	if err != nil {
		return nil, time.Time{}, err
	}
	var files []bytecodeimage.File
	for _, flag := range flags {
		platform, path, given := strings.Cut(flag, "=")
		if !given {
			platform, path = "", flag
		}
		paths, err := objectsIn(path)
		if err != nil {
			return nil, time.Time{}, err
		}
		for _, path := range paths {
			objects, err := bytecodeimage.Open(path)
			if err == nil && len(objects) > 1 {
				err = several(path, len(objects))
			}
			if err != nil {
				return nil, time.Time{}, err
			}
			objects[0].Platform = cmp.Or(platform, objects[0].Platform)
			files = append(files, objects[0])
		}
	}
	image, err := bytecodeimage.Build(files, created)
	return image, created, err
}

// several is the error about an executable with more than one object.
func several(path string, objects int) error {
	return fmt.Errorf("%s contains %d eBPF objects, but an image has only one: use the object file that the executable was built from", path, objects)
}

// objectsIn returns the object files of a directory, or the path itself if it isn't a directory.
func objectsIn(path string) ([]string, error) {
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return []string{path}, nil //nolint:nilerr // opening the file says what is wrong
	}
	found, err := filepath.Glob(filepath.Join(path, "*.o"))
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("directory %s has no object files (*.o)", path)
	}
	return found, err
}

// sourceDate parses SOURCE_DATE_EPOCH, which sets the date of reproducible builds.
func sourceDate(epoch string) (time.Time, error) {
	if epoch == "" {
		return time.Time{}, nil
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// registryFlags are the flags for access to registries.
type registryFlags struct {
	ca      string
	timeout time.Duration
}

func (f *registryFlags) addTo(command *cobra.Command) {
	const timeout = 2 * time.Minute
	command.Flags().StringVar(&f.ca, "registry-ca", "", "File with the certificate authority of the registry. By default, the system's.")
	command.Flags().DurationVar(&f.timeout, "timeout", timeout, "Time limit for the registry.")
}

// connect returns the registries, and a context with the timeout for calls.
func (f *registryFlags) connect(ctx context.Context) (context.Context, context.CancelFunc, *bytecodeimage.Registries, error) {
	registries, err := bytecodeimage.NewRegistries(f.ca)
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	return ctx, cancel, registries, err
}

func imagePushCommand() *cobra.Command {
	var files []string
	var from string
	var registry registryFlags
	command := &cobra.Command{
		Use:   "push IMAGE (-f [PLATFORM=]FILE | --from PATH)",
		Short: "Push a bytecode image to a registry",
		Long: `Push an image to a registry: an image that is built from object files, or one that "image build" wrote. The credentials are those of docker login or podman login.

The reference by digest, which you can use as an object's bytecode.image.url, is written to standard output.`,
		Example: `  kubectl bpfman image push registry.example.com/team/counter:v1 -f counter.o
  kubectl bpfman image push registry.example.com/team/counter:v1 --from counter.tar`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			image, closeIt, err := buildOrOpen(files, from)
			defer closeIt()
			if err != nil {
				return err
			}
			// Push only bytecode.
			if err := warn(c.ErrOrStderr(), image); err != nil {
				return err
			}
			ctx, cancel, registries, err := registry.connect(c.Context())
			defer cancel()
			if err != nil {
				return err
			}
			reference, err := registries.Push(ctx, args[0], image)
			if err != nil {
				return err
			}
			return printLine(c.OutOrStdout(), reference)
		},
	}
	command.Flags().StringArrayVarP(&files, "filename", "f", nil, filesHelp)
	command.Flags().StringVar(&from, "from", "", "OCI layout to push: a directory or an archive.")
	command.MarkFlagsOneRequired("filename", "from")
	command.MarkFlagsMutuallyExclusive("filename", "from")
	registry.addTo(command)
	return command
}

// warn prints warnings about objects that bpfman can't load, or that lack something.
func warn(w io.Writer, image partial.WithRawManifest) error {
	contents, err := bytecodeimage.Read(image)
	if err != nil {
		return fmt.Errorf("read what was built: %w", err)
	}
	for _, c := range contents {
		problems := slices.Concat(c.Problems, c.Remarks)
		for _, p := range c.Programs {
			if p.Unsupported != "" {
				problems = append(problems, fmt.Sprintf("function %s can't be loaded: %s", p.Name, p.Unsupported))
			}
		}
		for _, problem := range problems {
			if _, err := fmt.Fprintf(w, "warning: %s: %s\n", terminal.Line(c.File), terminal.Line(problem)); err != nil {
				return err
			}
		}
	}
	return nil
}

// buildOrOpen builds an image from object files, or opens one that "image build" wrote. An archive of one is recognized among
// the files, too.
func buildOrOpen(files []string, from string) (partial.WithRawManifest, func(), error) {
	if from == "" && len(files) == 1 && isArchive(files[0]) {
		from = files[0]
	}
	if from == "" {
		image, _, err := build(files)
		return image, func() {}, err
	}
	return bytecodeimage.OpenLayout(from)
}

// BytecodeImage is the output of "image inspect".
type BytecodeImage struct {
	metav1.TypeMeta `json:",inline"`
	// Image is what was inspected. If it is an image, Digest is the digest of its manifest or index.
	Image   string                  `json:"image"`
	Digest  string                  `json:"digest,omitempty"`
	Objects []bytecodeimage.Content `json:"objects"`
}

const imageInspectExample = `  # Show programs, maps, and global variables
  kubectl bpfman image inspect registry.example.com/team/counter:v1

  # Print an object that loads the image, and apply it
  kubectl bpfman image inspect registry.example.com/team/counter:v1 --as tcx | kubectl apply -f -

  # Print an application with all programs of a file; uprobes need a program or library
  kubectl bpfman image inspect counter.o --as application --image registry.example.com/team/counter:v1 --target libc --attach-to my_uprobe=malloc`

func imageInspectCommand(connect cluster.Connect) *cobra.Command {
	var o manifest.Options
	var attachTo []string
	var registry registryFlags
	flags := output.NewFlags()
	command := &cobra.Command{
		Use:   "inspect IMAGE|FILE|DIRECTORY",
		Short: "Show what is in a bytecode image or object file",
		Long: `Show the programs, maps, and global variables of a bytecode image in a registry, of an OCI layout, of an object file, or of the objects in an executable or a library. With --as, print an object that loads it. If a file or directory with the name exists, it is used.

If bpfman would refuse an image, the command says why.`,
		Example: imageInspectExample,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			ctx, cancel, registries, err := registry.connect(c.Context())
			defer cancel()
			if err != nil {
				return err
			}
			image, remote, err := inspect(ctx, registries, args[0])
			if err != nil {
				return err
			}
			if o.Kind == "" {
				return printImage(c.OutOrStdout(), flags, image)
			}
			if remote && o.Image == "" {
				o.Image = args[0]
			}
			o.AttachTo = map[string]string{}
			for _, to := range attachTo {
				function, target, given := strings.Cut(to, "=")
				if !given {
					function, target = "", to
				}
				o.AttachTo[function] = target
			}
			return printObject(c.OutOrStdout(), image, o, connect)
		},
	}
	flags.AddFormatTo(command)
	registry.addTo(command)
	command.Flags().StringVar(&o.Kind, "as", "", "Print an object of this kind that loads the bytecode: xdp, tc, tcx, tracepoint, kprobe, uprobe, fentry, fexit, lsm, application, or the name of a kind.")
	kinds := []string{"xdp", "tc", "tcx", "tracepoint", "kprobe", "uprobe", "fentry", "fexit", "lsm", "application"}
	_ = command.RegisterFlagCompletionFunc("as", cobra.FixedCompletions(kinds, cobra.ShellCompDirectiveNoFileComp)) // fails only for unknown flags
	command.Flags().StringVar(&o.Image, "image", "", "With --as: image that the nodes pull. By default, the inspected image.")
	command.Flags().StringVar(&o.Name, "name", "", "With --as: name of the object.")
	command.Flags().StringSliceVar(&o.Functions, "function", nil, "With --as: functions to load, if there are several.")
	command.Flags().StringArrayVar(&attachTo, "attach-to", nil, "With --as: interface, tracepoint, function, or hook to attach to, instead of the one that the section names or the primary interface. In applications, FUNCTION=TARGET.")
	command.Flags().StringVar(&o.Target, "target", "", "With --as: program or library to attach uprobes to.")
	return command
}

// inspect reads an image or a file, and reports whether it comes from a registry.
func inspect(ctx context.Context, registries *bytecodeimage.Registries, source string) (*BytecodeImage, bool, error) {
	image := &BytecodeImage{TypeMeta: metav1.TypeMeta{APIVersion: output.APIVersion, Kind: "BytecodeImage"}, Image: source}
	_, err := os.Stat(source)
	local := err == nil
	if local && isELF(source) {
		files, err := bytecodeimage.Open(source)
		if err != nil {
			return nil, false, err
		}
		for _, file := range files {
			content, err := object.Read(file.Content)
			if err != nil {
				return nil, false, fmt.Errorf("read eBPF object %s: %w", source, err)
			}
			image.Objects = append(image.Objects, bytecodeimage.Content{File: file.Name, Object: *content, Problems: content.Problems(), Remarks: content.Remarks()})
		}
		return image, false, nil
	}
	var content partial.WithRawManifest
	if local {
		var closeIt func()
		content, closeIt, err = bytecodeimage.OpenLayout(source)
		defer closeIt()
	} else {
		content, err = registries.Get(ctx, source)
	}
	switch {
	case err != nil && local:
		return nil, false, fmt.Errorf("%s is neither an object file nor an image: %w", source, err)
	case err != nil && looksLikeFile(source):
		return nil, false, fmt.Errorf("there is no file %s here, and as an image of a registry it can't be read: %w", source, err)
	case err != nil:
		return nil, false, err
	}
	digest, err := partial.Digest(content)
	if err == nil {
		image.Objects, err = bytecodeimage.Read(content)
	}
	if err != nil {
		return nil, false, fmt.Errorf("image %s: %w", source, err)
	}
	image.Digest = digest.String()
	return image, !local, nil
}

// looksLikeFile reports whether the argument is probably meant to be a file.
func looksLikeFile(source string) bool {
	return filepath.IsAbs(source) || strings.HasPrefix(source, ".") || slices.Contains([]string{".o", ".tar"}, filepath.Ext(source))
}

// isArchive reports whether a file is a tar archive.
func isArchive(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	_, err = tar.NewReader(file).Next()
	return err == nil && !isELF(path)
}

func isELF(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	magic := make([]byte, len(elf.ELFMAG))
	_, err = io.ReadFull(file, magic)
	return err == nil && string(magic) == elf.ELFMAG
}

func printObject(w io.Writer, image *BytecodeImage, o manifest.Options, connect cluster.Connect) error {
	if o.Image == "" {
		return errors.New("--as needs --image too: the image that the nodes pull, as `kubectl bpfman image push` prints it")
	}
	if image.Digest == "" && len(image.Objects) > 1 {
		return several(image.Image, len(image.Objects))
	}
	if to, err := connect(); err == nil {
		o.Namespace = to.Namespace
	}
	made, notes, err := manifest.Object(image.Objects[0].Object, o)
	if err != nil {
		return err
	}
	for _, note := range notes {
		if err := printLine(w, "# "+terminal.Line(note)); err != nil {
			return err
		}
	}
	text, err := output.YAML(made)
	if err != nil {
		return fmt.Errorf("print object: %w", err)
	}
	return printLine(w, strings.TrimSuffix(string(text), "\n"))
}

func printLine(w io.Writer, text string) error {
	_, err := fmt.Fprintln(w, text)
	return err
}
