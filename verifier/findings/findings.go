// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package findings looks beside an image for signatures and attestations, and
// into its bytecode, and says what it found.
//
// What a registry has is bounded, as anybody who may push to a repository can
// put thousands of signatures beside an image. Of a list that is longer than is
// looked at, its beginning and its end are: registries list in the order of
// arrival, one way or the other, so what was there before the others came is
// among them. Whoever can replace a tag, or delete, can take signatures away in
// any case: that keeps a program from being loaded, and lets none in.
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

	"github.com/bpfman/bpfman-operator/apis/verification"
	"github.com/bpfman/bpfman-operator/verifier/instructions"
	"github.com/bpfman/bpfman-operator/verifier/registry"
	"github.com/bpfman/bpfman-operator/verifier/signature"
)

const (
	// maxListed is how much of a list is looked at: of what refers to a manifest,
	// and of the signatures under a tag.
	maxListed = 1000
	// maxPayload is the most that a signature may have, in bytes, maxStatement what
	// an attestation may have, whose predicate can be a list of all that is in an image.
	maxPayload   = 64 << 10
	maxStatement = 8 << 20
	// parallel is how many requests a registry has at once from one process.
	parallel = 8
)

// Registry is what is read of a registry.
type Registry interface {
	Tagged(ctx context.Context, tag string) (*v1.Manifest, error)
	Manifest(ctx context.Context, digest v1.Hash) (*v1.Manifest, error)
	Referrers(ctx context.Context, digest v1.Hash) ([]v1.Descriptor, bool, error)
	Blob(ctx context.Context, digest v1.Hash, limit int64) ([]byte, error)
}

// Find answers a request. Of image and manifest, digests has those that a
// signature may name, the one that is loaded last.
func Find(ctx context.Context, from Registry, digests []v1.Hash, request *verification.Request) verification.Answer {
	var answer verification.Answer
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		s := newSearch(from, digests, request)
		if err := s.run(ctx); err != nil {
			return err
		}
		answer.Signatures, answer.Attestations = s.findings()
		return nil
	})
	if request.Bytecode {
		group.Go(func() error {
			used, err := bytecode(ctx, from, digests[len(digests)-1])
			if unfit, ok := errors.AsType[*instructions.UnfitError](err); ok {
				answer.BytecodeError = unfit.Error()
				return nil
			}
			answer.Helpers, answer.MapTypes = used.Helpers, used.MapTypes
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return verification.Answer{Error: err.Error()}
	}
	return answer
}

func bytecode(ctx context.Context, from Registry, digest v1.Hash) (instructions.Used, error) {
	m, err := from.Manifest(ctx, digest)
	switch {
	case errors.Is(err, registry.ErrMalformed):
		return instructions.Used{}, &instructions.UnfitError{Text: "the image's manifest can't be read"}
	case err != nil:
		return instructions.Used{}, fmt.Errorf("read the image's manifest: %w", err)
	case len(m.Layers) == 0:
		return instructions.Used{}, &instructions.UnfitError{Text: "the image has no layers"}
	// From elsewhere the daemon reads what was never looked at.
	case len(m.Layers[0].URLs) > 0:
		return instructions.Used{}, &instructions.UnfitError{Text: "the image's layer isn't in its registry"}
	}
	layer, err := from.Blob(ctx, m.Layers[0].Digest, instructions.MaxLayer)
	switch {
	case errors.Is(err, registry.ErrTooLarge):
		return instructions.Used{}, &instructions.UnfitError{Text: fmt.Sprintf("the image's layer has more than %d MiB", instructions.MaxLayer>>20)}
	case err != nil:
		return instructions.Used{}, fmt.Errorf("read the image's layer: %w", err)
	}
	return instructions.OfLayer(layer)
}

// wanted is one finding that is looked for.
type wanted struct {
	finding   *verification.Finding
	authority *signature.Authority
	predicate string
	// refused counts the candidates by why they don't count.
	refused map[string]int
}

type search struct {
	from    Registry
	digests []v1.Hash
	request *verification.Request

	mu     sync.Mutex
	wanted []*wanted
	open   int
	// failure is why something that is there could not be read; cut says that
	// there is more than was looked at.
	failure error
	cut     bool
	done    context.CancelFunc
	// payloads are shared by the signatures that are of the same.
	payloads map[v1.Hash]func() ([]byte, error)
}

func newSearch(from Registry, digests []v1.Hash, request *verification.Request) *search {
	s := &search{from: from, digests: digests, request: request, payloads: map[v1.Hash]func() ([]byte, error){}}
	authorities := map[string]*signature.Authority{}
	unusable := map[string]error{}
	for _, a := range request.Authorities {
		authority, err := signature.NewAuthority(a)
		authorities[a.Name], unusable[a.Name] = authority, err
	}
	want := func(name, predicate string) {
		w := &wanted{
			finding: &verification.Finding{Authority: name}, authority: authorities[name],
			predicate: predicate, refused: map[string]int{},
		}
		if predicate != signature.PredicateType {
			w.finding.PredicateType = predicate
		}
		s.wanted = append(s.wanted, w)
		switch err := unusable[name]; {
		case err != nil:
			w.authority, w.finding.Reason = nil, fmt.Sprintf("authority %s: %v", name, err)
		case w.authority == nil:
			w.finding.Reason = fmt.Sprintf("authority %s is unknown", name)
		default:
			s.open++
		}
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

// run looks until all is found or there is no more. The error is why it can't be
// said that something isn't there.
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
	_ = work.Wait() // failures are kept
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.open == 0:
		return nil
	case s.failure == nil && ctx.Err() != nil:
		return errors.New("there was not enough time to check all signatures and attestations of the image")
	}
	return s.failure
}

// suffixes are of the tags that cosign's older forms are under.
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

// failed keeps a failure that may hide something, and tells that there was one.
// What nobody can read hides nothing, however often it is asked for.
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

// ends are those of a list that are looked at, from both of its ends in turn.
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

// referrers looks at what refers to the image and may be of the wanted kinds: the
// registry's list says so, but not every registry's.
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

// The annotation by which cosign says in the list of referrers what a bundle has.
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

// look reads what may be a signature and offers it to all that is wanted.
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

// parse keeps what a parser of others' can't cope with from ending the process.
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

func (s *search) findings() (signatures, attestations []verification.Finding) {
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
