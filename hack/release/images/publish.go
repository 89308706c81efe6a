// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/bpfman/bpfman-operator/hack/cluster/image"
)

// Publisher pushes the images of a layout, and signs them. What is already published isn't published again.
type Publisher struct {
	Layout Layout
	// Cosign is the command, and Flags are its flags for signing. Without a key, it signs as the workflow that runs it.
	Cosign string
	Flags  []string
	// Bin contains a directory such as linux-arm64 with the bills of materials of the commands, for each architecture.
	Bin string
	// Provenance is the file with the SLSA provenance of the release.
	Provenance string
	// Latest says that the release also gets the tag latest.
	Latest bool
	Out    io.Writer
}

// The types of what cosign attaches to an image, which registries list.
const (
	signature  = "https://sigstore.dev/cosign/sign/v1"
	provenance = "https://slsa.dev/provenance/v1"
	materials  = "https://cyclonedx.org/bom"
)

// BillOfMaterials returns the path of the bill of materials of a command's image.
func BillOfMaterials(bin, architecture string, command image.Command) string {
	return filepath.Join(bin, "linux-"+architecture, "image-"+command.Repository+".cdx.json")
}

// Publish publishes all images. The tag latest comes last, when everything is there.
func (p Publisher) Publish(ctx context.Context) error {
	all, err := p.Layout.All()
	if err != nil {
		return err
	}
	// Nothing is published if a part of the version is already published with other content.
	absent := map[string]bool{}
	for _, each := range all {
		if absent[each.Name], err = isAbsent(ctx, each); err != nil {
			return err
		}
	}
	for _, each := range all {
		if absent[each.Name] {
			if err := p.push(ctx, each, each.Name); err != nil {
				return err
			}
		}
		if err := p.attach(ctx, each); err != nil {
			return err
		}
	}
	if p.Latest {
		return p.tagLatest(ctx, all)
	}
	return nil
}

// tagLatest gives images the tag latest. The chart has none, because Helm finds the highest version itself.
func (p Publisher) tagLatest(ctx context.Context, all []Named) error {
	for _, each := range all {
		repository, _, isImage := strings.Cut(each.Name, ":v")
		if !isImage {
			continue
		}
		latest := repository + ":latest"
		if there, err := WithDigest(ctx, latest); err == nil && there == latest+"@"+each.Digest.String() {
			continue
		}
		if err := p.push(ctx, each, latest); err != nil {
			return err
		}
	}
	return nil
}

func options(ctx context.Context) []remote.Option {
	return []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
}

// isAbsent reports whether a registry doesn't have the image. A published version never changes.
func isAbsent(ctx context.Context, n Named) (bool, error) {
	ref, err := name.ParseReference(n.Name)
	if err != nil {
		return false, fmt.Errorf("name of an image: %w", err)
	}
	found, err := remote.Head(ref, options(ctx)...)
	var refused *transport.Error
	switch {
	case errors.As(err, &refused) && refused.StatusCode == http.StatusNotFound:
		return true, nil
	case err != nil:
		return false, fmt.Errorf("look for %s: %w", ref, err)
	case found.Digest != n.Digest:
		return false, fmt.Errorf("%s is already published as %s, but this build is %s: release another version", ref, found.Digest, n.Digest)
	}
	return false, nil
}

// WithDigest returns a reference with the digest that the registry has for it, unless it has one.
func WithDigest(ctx context.Context, reference string) (string, error) {
	if strings.Contains(reference, "@") {
		return reference, nil
	}
	ref, err := name.ParseReference(reference)
	if err != nil {
		return "", fmt.Errorf("name of an image: %w", err)
	}
	found, err := remote.Head(ref, options(ctx)...)
	if err != nil {
		return "", fmt.Errorf("find the digest of %s: %w", ref, err)
	}
	return reference + "@" + found.Digest.String(), nil
}

// Base returns the index of a base image.
func Base(ctx context.Context, reference string) (v1.ImageIndex, error) {
	ref, err := name.ParseReference(reference)
	if err != nil {
		return nil, fmt.Errorf("name of an image: %w", err)
	}
	index, err := remote.Index(ref, options(ctx)...)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", ref, err)
	}
	return index, nil
}

func (p Publisher) push(ctx context.Context, n Named, as string) error {
	ref, err := name.ParseReference(as)
	if err != nil {
		return fmt.Errorf("name of an image: %w", err)
	}
	if n.MediaType.IsIndex() {
		var content v1.ImageIndex
		if content, err = p.Layout.index(n); err == nil {
			err = remote.WriteIndex(ref, content, options(ctx)...)
		}
	} else {
		var content v1.Image
		if content, err = p.Layout.image(n); err == nil {
			err = remote.Write(ref, content, options(ctx)...)
		}
	}
	if err != nil {
		return fmt.Errorf("push %s: %w", ref, err)
	}
	_, err = fmt.Fprintf(p.Out, "pushed %s@%s\n", as, n.Digest)
	return err
}

// attach signs an image, and attaches the provenance, and the bills of materials to the image of each architecture.
func (p Publisher) attach(ctx context.Context, n Named) error {
	ref, err := name.ParseReference(n.Name)
	if err != nil {
		return fmt.Errorf("name of an image: %w", err)
	}
	digest := ref.Context().Digest(n.Digest.String())
	if err := p.once(ctx, digest, signature, "sign"); err != nil {
		return err
	}
	if err := p.once(ctx, digest, provenance, "attest", "--type", "slsaprovenance1", "--predicate", p.Provenance); err != nil {
		return err
	}
	for _, command := range image.Published {
		// The chart has the same name as the operator.
		if !n.MediaType.IsIndex() || !strings.HasSuffix(ref.Context().RepositoryStr(), "/"+command.Repository) {
			continue
		}
		index, err := p.Layout.index(n)
		if err != nil {
			return fmt.Errorf("read %s: %w", ref, err)
		}
		manifest, err := index.IndexManifest()
		if err != nil {
			return fmt.Errorf("read %s: %w", ref, err)
		}
		for _, each := range manifest.Manifests {
			of := ref.Context().Digest(each.Digest.String())
			bom := BillOfMaterials(p.Bin, each.Platform.Architecture, command)
			if err := p.once(ctx, of, materials, "attest", "--type", "cyclonedx", "--predicate", bom); err != nil {
				return err
			}
		}
	}
	return nil
}

// once runs cosign, unless something of this type is already attached to the image.
func (p Publisher) once(ctx context.Context, to name.Digest, predicate string, command ...string) error {
	attached, err := remote.Referrers(to, options(ctx)...)
	if err != nil {
		return fmt.Errorf("list what is attached to %s: %w", to, err)
	}
	manifest, err := attached.IndexManifest()
	if err != nil {
		return fmt.Errorf("list what is attached to %s: %w", to, err)
	}
	for _, each := range manifest.Manifests {
		// A registry without the referrers API lists no annotations, so they are read from what is attached.
		found, err := remote.Image(to.Context().Digest(each.Digest.String()), options(ctx)...)
		if err != nil {
			return fmt.Errorf("read what is attached to %s: %w", to, err)
		}
		attached, err := found.Manifest()
		if err != nil {
			return fmt.Errorf("read what is attached to %s: %w", to, err)
		}
		if attached.Annotations["dev.sigstore.bundle.predicateType"] == predicate {
			return nil
		}
	}
	arguments := append(append([]string{command[0], "--yes"}, p.Flags...), append(command[1:], to.String())...)
	run := exec.CommandContext(ctx, p.Cosign, arguments...)
	run.Env = os.Environ()
	if output, err := run.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", p.Cosign, strings.Join(arguments, " "), err, output)
	}
	_, err = fmt.Fprintf(p.Out, "cosign %s %s (%s)\n", command[0], to, predicate)
	return err
}
