// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package findings looks for the signatures and attestations of an image, and returns what
// it finds.
//
// It limits what it reads from a registry, because anyone who can push to a repository
// can add thousands of signatures to an image. If a list is too long, it reads its
// beginning and its end. Registries list in the order of arrival, or in the opposite
// order, so this includes what existed before the others were added. An attacker who can
// replace a tag or delete content can remove signatures in any case. That prevents
// programs from being loaded, but never allows one.
package findings

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/errgroup"

	"github.com/bpfman/bpfman-operator/bytecode/registry"
	"github.com/bpfman/bpfman-operator/bytecode/signature"
	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/internal/reader"
)

const (
	// maxListed is the maximum number of elements to read from a list, either of a
	// manifest's referrers or of the signatures under a tag.
	maxListed = 1000
	// maxPayload is the maximum size of a signature, in bytes. maxStatement is the
	// maximum size of an attestation, whose predicate can list everything in an image.
	maxPayload   = 64 << 10
	maxStatement = 8 << 20
	// parallel is the maximum number of concurrent requests to a registry.
	parallel = 8
)

// Registry reads from a registry.
type Registry interface {
	Tagged(ctx context.Context, tag string) (*v1.Manifest, error)
	Manifest(ctx context.Context, digest v1.Hash) (*v1.Manifest, error)
	Referrers(ctx context.Context, digest v1.Hash) ([]v1.Descriptor, bool, error)
	Blob(ctx context.Context, digest v1.Hash, limit int64) ([]byte, error)
}

// Find looks for the signatures and attestations of a request. digests contains the
// digests of the image and the manifest. A signature can be for any of them.
func Find(ctx context.Context, from Registry, digests []v1.Hash, request *reader.Request) (signatures, attestations []reader.Finding, err error) {
	s := newSearch(from, digests, request)
	if err := s.run(ctx); err != nil {
		return nil, nil, err
	}
	signatures, attestations = s.findings()
	return signatures, attestations, nil
}

// wanted is one finding to look for.
type wanted struct {
	finding   *reader.Finding
	authority *signature.Authority
	predicate string
	// refused counts the invalid candidates by reason.
	refused map[string]int
}

type search struct {
	from    Registry
	digests []v1.Hash
	request *reader.Request

	mu     sync.Mutex
	wanted []*wanted
	open   int
	// failure is the reason why something couldn't be read. cut means that there is more
	// than was read.
	failure error
	cut     bool
	done    context.CancelFunc
	// payloads caches the payloads that several signatures share.
	payloads map[v1.Hash]func() ([]byte, error)
}

func newSearch(from Registry, digests []v1.Hash, request *reader.Request) *search {
	s := &search{from: from, digests: digests, request: request, payloads: map[v1.Hash]func() ([]byte, error){}}
	authorities := map[string]*signature.Authority{}
	unusable := map[string]error{}
	for _, a := range request.Authorities {
		authority, err := signature.NewAuthority(a)
		authorities[a.Name], unusable[a.Name] = authority, err
	}
	want := func(name, predicate string) {
		w := &wanted{
			finding: &reader.Finding{Authority: name}, authority: authorities[name],
			predicate: predicate, refused: map[string]int{},
		}
		if predicate != signature.PredicateType {
			w.finding.PredicateType = predicate
		}
		s.wanted = append(s.wanted, w)
		err := unusable[name]
		switch {
		case err != nil:
			err = fmt.Errorf("authority %s: %w", name, err)
		case w.authority == nil:
			err = problem.Errorf(problem.NoSuchAuthority, "authority %s is unknown", name)
		default:
			s.open++
			return
		}
		w.authority, w.finding.Reason, w.finding.Problem = nil, err.Error(), problem.Of(err)
	}
	for _, a := range request.Authorities {
		want(a.Name, signature.PredicateType)
	}
	for _, a := range request.Attestations {
		for _, name := range a.Authorities {
			want(name, a.PredicateType)
		}
	}
	return s
}

// run searches until everything is found, or everything is read. If it returns an error,
// it isn't known whether the missing signatures exist.
func (s *search) run(ctx context.Context) error {
	if s.open == 0 {
		return nil
	}
	ctx, s.done = context.WithCancel(ctx)
	defer s.done()
	var places sync.WaitGroup
	work := &errgroup.Group{}
	work.SetLimit(parallel)
	for _, digest := range s.digests {
		for _, suffix := range s.suffixes() {
			places.Go(func() {
				tag := registry.Tag(digest, suffix)
				if m, err := s.from.Tagged(ctx, tag); !s.failed(ctx, "read tag "+tag, err) {
					s.layers(ctx, work, m)
				}
			})
		}
		places.Go(func() {
			listed, more, err := s.from.Referrers(ctx, digest)
			if !s.failed(ctx, "list what refers to "+digest.String(), err) {
				s.referrers(ctx, work, listed, more)
			}
		})
	}
	places.Wait()
	_ = work.Wait() // failures are in s.failure
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.open == 0:
		return nil
	case s.failure == nil && ctx.Err() != nil:
		return problem.Errorf(problem.RegistrySlow, "there was not enough time to check all signatures and attestations of the image")
	}
	return s.failure
}

// suffixes returns the suffixes of the tags for cosign's older formats.
func (s *search) suffixes() []string {
	var suffixes []string
	if len(s.request.Authorities) > 0 {
		suffixes = append(suffixes, ".sig")
	}
	if len(s.request.Attestations) > 0 {
		suffixes = append(suffixes, ".att")
	}
	return suffixes
}

// failed records an error that can hide a signature, and reports whether there was an
// error. Content that is never readable can't hide one.
func (s *search) failed(ctx context.Context, what string, err error) bool {
	switch {
	case err == nil:
		return false
	case errors.Is(err, registry.ErrAbsent), errors.Is(ctx.Err(), context.Canceled):
		return true
	case errors.Is(err, registry.ErrTooLarge):
		s.offer(nil, errors.New("too large"))
		return true
	case errors.Is(err, registry.ErrMalformed):
		s.offer(nil, errors.New("not readable"))
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure == nil {
		s.failure = fmt.Errorf("%s: %w", what, err)
	}
	return true
}

// ends returns the elements to read, alternating between the beginning and the end of a
// list.
func (s *search) ends(listed []v1.Descriptor) []v1.Descriptor {
	if len(listed) <= maxListed {
		return listed
	}
	s.mu.Lock()
	s.cut = true
	s.mu.Unlock()
	ends := make([]v1.Descriptor, 0, maxListed)
	for i := range maxListed / 2 {
		ends = append(ends, listed[i], listed[len(listed)-1-i])
	}
	return ends
}

// referrers reads the image's referrers that can have the wanted types. Not every
// registry includes the types in its list.
func (s *search) referrers(ctx context.Context, work *errgroup.Group, listed []v1.Descriptor, more bool) {
	if more {
		s.mu.Lock()
		s.cut = true
		s.mu.Unlock()
	}
	listed = slices.DeleteFunc(listed, func(d v1.Descriptor) bool { return !s.mayBe(d) })
	for _, d := range s.ends(listed) {
		work.Go(func() error {
			s.referrer(ctx, d.Digest)
			return nil
		})
	}
}

func (s *search) referrer(ctx context.Context, digest v1.Hash) {
	if ctx.Err() != nil {
		return
	}
	m, err := s.from.Manifest(ctx, digest)
	if s.failed(ctx, "read "+digest.String(), err) {
		return
	}
	for _, layer := range s.ends(m.Layers) {
		s.look(ctx, layer)
	}
}

// The annotation in the list of referrers in which cosign stores the type of a bundle.
const annotationPredicate = "dev.sigstore.bundle.predicateType"

func (s *search) mayBe(d v1.Descriptor) bool {
	kind := d.ArtifactType
	if kind != "" && !strings.HasPrefix(kind, signature.BundlePrefix) && !strings.HasPrefix(kind, "application/vnd.dev.cosign.") &&
		!strings.HasPrefix(kind, "application/vnd.oci.") {
		return false
	}
	predicate, told := d.Annotations[annotationPredicate]
	return !told || slices.ContainsFunc(s.wanted, func(w *wanted) bool { return w.predicate == predicate })
}

func (s *search) layers(ctx context.Context, work *errgroup.Group, m *v1.Manifest) {
	for _, layer := range s.ends(m.Layers) {
		work.Go(func() error {
			s.look(ctx, layer)
			return nil
		})
	}
}

// look reads a candidate for a signature, and compares it with all wanted findings.
func (s *search) look(ctx context.Context, layer v1.Descriptor) {
	kind := string(layer.MediaType)
	if ctx.Err() != nil || kind != signature.SimpleSigning && kind != signature.Envelope && !strings.HasPrefix(kind, signature.BundlePrefix) {
		return
	}
	content, err := s.content(ctx, layer)
	if s.failed(ctx, "read "+layer.Digest.String(), err) {
		return
	}
	candidate, err := parse(layer, content)
	s.offer(candidate, err)
}

// parse recovers from a panic of a third-party parser.
func parse(layer v1.Descriptor, content []byte) (c *signature.Candidate, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = errors.New("not readable")
		}
	}()
	return signature.Parse(layer, content)
}

func (s *search) content(ctx context.Context, layer v1.Descriptor) ([]byte, error) {
	if layer.MediaType != signature.SimpleSigning {
		return s.from.Blob(ctx, layer.Digest, maxStatement)
	}
	s.mu.Lock()
	read, ok := s.payloads[layer.Digest]
	if !ok {
		read = sync.OnceValues(func() ([]byte, error) { return s.from.Blob(ctx, layer.Digest, maxPayload) })
		s.payloads[layer.Digest] = read
	}
	s.mu.Unlock()
	return read()
}

func (s *search) offer(c *signature.Candidate, unreadable error) {
	for _, w := range s.wanted {
		s.mu.Lock()
		settled := w.authority == nil || w.finding.Signer != ""
		s.mu.Unlock()
		if settled || c != nil && c.Predicate != w.predicate {
			continue
		}
		signer, err := "", unreadable
		if err == nil {
			signer, err = verified(w.authority, c, s.digests)
		}
		s.mu.Lock()
		switch {
		case err != nil:
			w.refused[err.Error()]++
		case w.finding.Signer == "":
			w.finding.Signer = signer
			if s.open--; s.open == 0 {
				s.done()
			}
		}
		s.mu.Unlock()
	}
}

func verified(a *signature.Authority, c *signature.Candidate, digests []v1.Hash) (signer string, err error) {
	defer func() {
		if r := recover(); r != nil {
			signer, err = "", errors.New("not readable")
		}
	}()
	return a.Verify(c, digests)
}

func (s *search) findings() (signatures, attestations []reader.Finding) {
	for _, w := range s.wanted {
		if w.finding.Signer == "" && w.finding.Reason == "" {
			w.finding.Reason = w.reason(s.cut)
		}
		if w.finding.PredicateType == "" {
			signatures = append(signatures, *w.finding)
		} else {
			attestations = append(attestations, *w.finding)
		}
	}
	return signatures, attestations
}
