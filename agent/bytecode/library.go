// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bytecode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/lru"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/internal/reader"
)

// maxFindings is the maximum number of findings in memory. The store has them, too.
const maxFindings = 512

// Library answers what is in an image and who signed it, from the store or from the
// image's registry. It never waits for a registry. Its methods can be called
// concurrently.
type Library struct {
	// Read answers a request. It has files if an object is requested. It must
	// return when its context ends.
	Read func(ctx context.Context, request *reader.Request, files *Files) reader.Answer
	// Store has what was read.
	Store *Store
	// Observe, if not nil, is called after a read with its duration and its result:
	// read, unfit, or failed.
	Observe func(took time.Duration, result string)

	once     sync.Once
	lanes    *lanes
	runs     *runs
	busy     *busy
	findings *lru.Cache // Findings by findingsKey
}

// Question asks about an image.
type Question struct {
	// Owner is the object that asks.
	Owner program.Key
	// Image is the image. Without digests, its reference is resolved, as the pull policy
	// requires.
	Image      Image
	PullPolicy v1alpha1.PullPolicy
	// Credentials returns the credentials for the registry. It is only called if the node
	// doesn't have the answer, or for signatures: findings for one user aren't returned to
	// another. With a NoEntryError, the image is read without credentials.
	Credentials func() (reader.Credentials, error)
	// Object requests the object.
	Object bool
	// Authorities and Attestations are the signatures to look for.
	Authorities  []reader.Authority
	Attestations []reader.Attestation
}

// Findings contains who signed an image.
type Findings struct {
	Signatures   []reader.Finding `json:"signatures,omitempty"`
	Attestations []reader.Finding `json:"attestations,omitempty"`
}

// Bytecode is the answer to a question.
type Bytecode struct {
	Image
	Findings
	// Path is the path of the object, and Object describes it. Path is empty if the node
	// doesn't have the object.
	Path   string
	Object reader.Object
}

// PendingError means that an image is being read.
type PendingError struct {
	Reference string
	Since     time.Time
}

func (e *PendingError) Error() string {
	return problem.Notef(problem.RegistryPending, "image %s: waiting for its registry", e.Reference).Text
}

// Problem implements the method of errors that name their problem.
func (e *PendingError) Problem() problem.Reason { return problem.RegistryPending }

// UnfitError is about the image itself. It stays until the reference leads to another
// image.
type UnfitError struct {
	Reason problem.Reason
	Text   string
}

func (e *UnfitError) Error() string { return e.Text }

// Problem implements the method of errors that name their problem.
func (e *UnfitError) Problem() problem.Reason { return e.Reason }

// Find answers a question. If the answer isn't known yet, it returns a PendingError, and
// calls later, unless it is nil, when it makes sense to ask again. If there is an error about
// signatures, the answer still has the object.
func (l *Library) Find(ctx context.Context, q Question, later func()) (Bytecode, error) {
	l.once.Do(func() {
		l.lanes, l.busy, l.findings = newLanes(), newBusy(), lru.New(maxFindings)
		l.runs = newRuns(l.lanes.reconsider)
	})
	found, request, err := l.known(q)
	if err != nil || request == nil {
		l.runs.leave(q.Owner, q.Image)
		return found, err
	}
	key, lasting := hash(fmt.Append(nil, found.Image)), true
	read := func(ctx context.Context, r *run) (Bytecode, error) {
		return l.adapt(ctx, r, q.Owner.Namespace, found, request)
	}
	if request.Image != "" {
		if q.PullPolicy == v1alpha1.PullNever && request.Object {
			return found, problem.Errorf(problem.ImageNotOnNode, "image %s isn't on this node, and the pull policy is Never", q.Image.Reference)
		}
		c, noEntry, err := q.credentials()
		if err != nil {
			return found, err
		}
		if c != (reader.Credentials{}) {
			request.Credentials = &c
		}
		key, lasting = q.runKey(*request, noEntry), strings.Contains(request.Image, "@")
		read = func(ctx context.Context, r *run) (Bytecode, error) { return l.read(ctx, r, q, request, noEntry) }
	}
	wanted := &run{key: key, image: q.Image, lasting: lasting}
	if l.lanes.laneOf(hostOf(request.Image)) > 0 {
		wanted.speed = slow
	}
	for {
		r, since := l.runs.join(ctx, q.Owner, wanted, func(ctx context.Context) (Bytecode, error) { return read(ctx, wanted) }, later)
		switch {
		case r == nil:
			return found, &PendingError{Reference: q.Image.Reference, Since: since}
		case r.err != nil:
			return found, r.err
		case r.found.Path == "":
			return r.found, nil
		}
		result := r.found
		path, object, there := l.Store.Object(result.Image)
		switch result.Path, result.Object = path, object; {
		case !there: // it was removed since
			l.runs.discard(r)
		case request.Image == "":
			return l.Find(ctx, q, later)
		default:
			return result, nil
		}
	}
}

// known returns what the store and the cache answer, and the request for the rest. It
// returns no request if there is no rest. The request has no image if an object in the store
// must be adapted first.
func (l *Library) known(q Question) (Bytecode, *reader.Request, error) {
	request := &reader.Request{Image: q.Image.Reference, Object: q.Object, Authorities: q.Authorities, Attestations: q.Attestations}
	found := Bytecode{Image: q.Image}
	running := q.Image.Digest != ""
	if !running {
		resolved, ok := l.Store.Resolved(q.Image.Reference)
		if !ok {
			return found, request, nil
		}
		found.Image = resolved
	}
	path, object, ok := l.Store.Object(found.Image)
	if ok {
		found.Path, found.Object, request.Have = path, object, found.Manifest
	} else if q.Object {
		var kept bool
		switch found.Object, kept = l.Store.ImageObject(found.Image); {
		case kept:
			return found, &reader.Request{Object: true}, nil
		case !running:
			return Bytecode{Image: q.Image}, request, nil // the tag is resolved again
		}
	}
	if q.PullPolicy == v1alpha1.PullAlways && !running {
		return Bytecode{Image: q.Image}, request, nil
	}
	request.Image, request.Object = found.Resolved(), q.Object && !ok
	signed, err := l.signed(q, &found)
	if signed && !request.Object {
		return found, nil, err
	}
	return found, request, err
}

// signed sets stored findings. It returns true if there is nothing more to look for.
func (l *Library) signed(q Question, found *Bytecode) (bool, error) {
	if len(q.Authorities)+len(q.Attestations) == 0 {
		return true, nil
	}
	key, err := q.findingsKey(found.Image)
	if err != nil {
		return false, err
	}
	if kept, ok := l.findings.Get(key); ok {
		found.Findings, _ = kept.(Findings)
		return true, nil
	}
	kept, ok := l.Store.Findings(key)
	if ok {
		found.Findings = kept
		l.findings.Add(key, kept)
	}
	return ok, nil
}

// findingsKey returns a hash of everything that findings depend on. It mustn't change between versions of the agent, or
// findings in the store aren't found anymore.
func (q Question) findingsKey(image Image) (string, error) {
	type credentials struct{ Username, Password string }
	c, _, err := q.credentials()
	content, _ := json.Marshal(struct { //nolint:errchkjson // strings always encode
		Image, Manifest string
		Credentials     credentials
		Authorities     []reader.Authority
		Attestations    []reader.Attestation
	}{image.Resolved(), image.Manifest, credentials(c), q.Authorities, q.Attestations})
	return hash(content), err
}

// credentials returns the credentials, and the NoEntryError if there are none because of it.
func (q Question) credentials() (c reader.Credentials, noEntry *NoEntryError, err error) {
	if c, err = q.Credentials(); errors.As(err, &noEntry) {
		return reader.Credentials{}, noEntry, nil
	}
	return c, nil, err
}

// runKey returns a hash of everything that the result of a run depends on. What the node
// has isn't a part of it, because the run changes that.
func (q Question) runKey(request reader.Request, noEntry *NoEntryError) string {
	request.Image, request.Object, request.Have = "", q.Object, ""
	content, _ := json.Marshal(struct { //nolint:errchkjson // strings always encode
		Request reader.Request
		Image   Image
		NoEntry *NoEntryError // the error can name the Secret
		Always  bool          // what others waited for can be older
	}{request, q.Image, noEntry, q.PullPolicy == v1alpha1.PullAlways})
	return hash(content)
}

// ask has the reader answer a request about an image, with the files that create returns.
func (l *Library) ask(ctx context.Context, r *run, image Image, request *reader.Request, create func() (*Files, error)) (answer reader.Answer, files *Files, err error) {
	var failed error
	var wait *BusyError
	one := reading{host: hostOf(request.Image), namespaces: func() []string { return l.runs.waitFor(r) }, leave: func() bool { return l.runs.slow(r) }}
	one.read = func(ctx context.Context) {
		files.Discard()
		if wait = l.busy.answer(request); wait != nil {
			return
		}
		start := time.Now()
		if files, failed = create(); failed != nil {
			return
		}
		answer = l.Read(ctx, request, files)
		if ctx.Err() == nil && l.Observe != nil {
			l.Observe(time.Since(start), resultOf(&answer))
		}
		wait = l.busy.note(request, &answer)
	}
	err = l.lanes.run(ctx, one)
	text := fmt.Sprintf("image %s: %s", image.Reference, answer.Error)
	switch err = errors.Join(err, failed); {
	case err != nil:
		err = fmt.Errorf("image %s: %w", image.Reference, err)
	case wait != nil:
		err = fmt.Errorf("image %s: %w", image.Reference, wait)
	case answer.Unfit:
		err = &UnfitError{answer.Problem, text}
	case answer.Error != "":
		err = &problem.Error{Reason: answer.Problem, Err: errors.New(text)}
	}
	return answer, files, err
}

// adapt has the object of an image in the store adapted to this kernel, and stores the result for an object of a namespace.
func (l *Library) adapt(ctx context.Context, r *run, namespace string, found Bytecode, request *reader.Request) (Bytecode, error) {
	answer, files, err := l.ask(ctx, r, found.Image, request, func() (*Files, error) { return l.Store.Copy(found.Image) })
	defer files.Discard()
	if err != nil {
		return Bytecode{}, err
	}
	// An object for another kernel would be adapted again and again.
	if answer.Object == nil || answer.Object.Digest != found.Object.Digest || !answer.Object.Adapted.Fits(l.Store.Kernel) {
		return Bytecode{}, problem.Errorf(problem.ReadAgain, "image %s: %s answered about another object", found.Reference, reader.Command)
	}
	found.Object = *answer.Object
	found.Path, err = l.Store.Put(namespace, found.Image, files, found.Object)
	return found, err
}

// read reads an image from its registry, and stores the result.
func (l *Library) read(ctx context.Context, r *run, q Question, request *reader.Request, noEntry *NoEntryError) (Bytecode, error) {
	answer, files, err := l.ask(ctx, r, q.Image, request, func() (*Files, error) {
		if !request.Object {
			return nil, nil //nolint:nilnil // there is nothing to write
		}
		return l.Store.Create()
	})
	defer files.Discard()
	switch {
	case err != nil && answer.NeedsCredentials && noEntry != nil:
		return Bytecode{}, fmt.Errorf("image %s: %w", q.Image.Reference, noEntry)
	case err != nil:
		return Bytecode{}, err
	}
	found := Bytecode{
		Image:    Image{Reference: q.Image.Reference, Digest: answer.Digest, Manifest: answer.Manifest},
		Findings: Findings{answer.Signatures, answer.Attestations},
	}
	_, digest, byDigest := strings.Cut(request.Image, "@")
	if byDigest && digest != answer.Digest || q.Image.Manifest != "" && q.Image.Manifest != answer.Manifest {
		return Bytecode{}, problem.Errorf(problem.ReadAgain, "image %s: %s answered about another one: digest %q, manifest %q", q.Image.Reference, reader.Command, answer.Digest, answer.Manifest)
	}
	if answer.Object != nil && files != nil {
		_, err = l.Store.Put(q.Owner.Namespace, found.Image, files, *answer.Object)
	}
	return l.keep(ctx, q, found, err)
}

// keep stores what was read. Only the object has to be stored.
func (l *Library) keep(ctx context.Context, q Question, found Bytecode, err error) (Bytecode, error) {
	if err == nil && q.Object {
		var ok bool
		if found.Path, found.Object, ok = l.Store.Object(found.Image); !ok {
			err = problem.Errorf(problem.ReadAgain, "image %s: its object isn't in the store", q.Image.Reference)
		}
	}
	if err != nil {
		return Bytecode{}, err
	}
	// An image that was loaded by another version is what its reference was resolved to.
	if _, known := l.Store.Resolved(q.Image.Reference); q.Object && (q.Image.Digest == "" || !known) {
		err = l.Store.Keep(found.Image)
	}
	if len(q.Authorities)+len(q.Attestations) > 0 && found.complete() {
		key, unreadable := q.findingsKey(found.Image)
		l.findings.Add(key, found.Findings)
		err = errors.Join(err, unreadable, l.Store.KeepFindings(key, found.Image, found.Findings))
	}
	if err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Failed to store what is known about an image; it will be read again", "image", q.Image.Reference)
	}
	return found, nil
}

// complete reports whether all signatures were found. Others can be added later.
func (f Findings) complete() bool {
	for _, findings := range [][]reader.Finding{f.Signatures, f.Attestations} {
		for _, finding := range findings {
			if finding.Signer == "" {
				return false
			}
		}
	}
	return true
}

func resultOf(answer *reader.Answer) string {
	switch {
	case answer.Unfit:
		return "unfit"
	case answer.Error != "":
		return "failed"
	default:
		return "read"
	}
}
