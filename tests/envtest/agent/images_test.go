// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"google.golang.org/protobuf/proto"

	"github.com/bpfman/bpfman-operator/agent/bytecode"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/bytecodeimage"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
	"github.com/bpfman/bpfman-operator/internal/reader"
	"github.com/bpfman/bpfman-operator/tests/bytecodetest"
	"github.com/bpfman/bpfman-operator/tests/must"
	"github.com/bpfman/bpfman-operator/tests/registry"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// image returns an image that is different for each content. The daemon in memory
// doesn't read it.
func image(t *testing.T, content string) v1.Image {
	t.Helper()
	labels := map[string]string{bytecodeimage.ProgramsLabel: `{"f":"tracepoint"}`, bytecodeimage.MapsLabel: `{}`}
	built, err := bytecodeimage.Image("f.o", []byte(content), labels, runtime.GOARCH, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return built
}

func digestOf(t *testing.T, content interface{ Digest() (v1.Hash, error) }) string {
	t.Helper()
	digest, err := content.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest.String()
}

// ofImage returns a tracepoint program from an image.
func (n *node) ofImage(name, url string, policy v1alpha1.PullPolicy) *v1alpha1.TracepointProgram {
	o := n.tracepoint(name, "f", "a/"+name)
	o.Spec.ByteCode = v1alpha1.BytecodeSelector{Image: &v1alpha1.BytecodeImage{Url: url, ImagePullPolicy: policy}}
	return o
}

// resolve returns the digests of an image in a registry of the test. Images of other
// registries have made-up ones.
func resolve(ctx context.Context, image string) (digest, manifest string, err error) {
	ref, err := name.ParseReference(image)
	if err != nil {
		return "", "", fmt.Errorf("parse: %w", err)
	}
	if at := ref.Context().RegistryStr(); !strings.HasPrefix(at, "127.0.0.1:") || at == "127.0.0.1:1" {
		return "", "", nil
	}
	got, err := remote.Get(ref, remote.WithContext(ctx), remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}))
	if err != nil {
		return "", "", err
	}
	if !got.MediaType.IsIndex() {
		return got.Digest.String(), got.Digest.String(), nil
	}
	here, err := got.Image()
	if err != nil {
		return "", "", err
	}
	hash, err := here.Digest()
	return got.Digest.String(), hash.String(), err
}

// readImage replaces bpfman-reader, which has its own tests.
func (n *node) readImage(ctx context.Context, request *reader.Request, files *bytecode.Files) reader.Answer {
	n.mu.Lock()
	n.read = append(n.read, request)
	unread, hook := n.unread, n.onRead
	n.mu.Unlock()
	if hook != nil {
		hook(ctx)
	}
	if unread != "" {
		return reader.Answer{Error: unread}
	}
	signers := func(digest string) []string {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.signed[digest]
	}
	return bytecodetest.Reader{Resolve: resolve, Signers: signers}.Read(ctx, request, files)
}

// reads returns how often images were read.
func (n *node) reads() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.read)
}

// reboot restarts the agent with a daemon that has no programs.
func (n *node) reboot() {
	n.t.Helper()
	n.crash()
	n.daemon = daemontest.New(n.t.TempDir())
	n.startAgent()
}

// loadedFrom waits until the daemon has loaded an owner's program from the stored object of
// an image, which is a reference with the digest of the manifest, and the report says so.
func (n *node) loadedFrom(owner, reference string, want v1alpha1.BpfProgramBytecode) {
	n.t.Helper()
	path := filepath.Join(n.store, "images", reference+".o")
	_, manifest, _ := strings.Cut(reference, "@")
	n.eventually(owner+" from "+reference, func() error {
		var from []string
		for _, p := range n.daemon.Programs() {
			if p.Metadata[v1alpha1.MetadataProgramName] == owner {
				from = append(from, p.File)
			}
		}
		if len(from) != 1 || from[0] != path {
			return fmt.Errorf("loaded from %q", from)
		}
		if content, err := os.ReadFile(path); err != nil || string(content) != "the object of "+manifest {
			return fmt.Errorf("the file contains %q: %w", content, err)
		}
		reports := n.reportsOn(owner)
		if len(reports) == 0 {
			return errors.New("no object tells of it")
		}
		if b := reports[0].GetStatus().Bytecode; b == nil || b.Image != want.Image || b.Digest != want.Digest || b.Manifest != want.Manifest {
			return fmt.Errorf("status.bytecode %+v", b)
		}
		return nil
	})
}

// If a tag moves after the image was read and before the daemon's Load, the daemon still
// gets the object that was read.
func TestTagMovedBetweenReadAndLoad(t *testing.T) {
	n := start(t)
	r := registry.Serve(t, nil, authority)
	good, other := image(t, "good"), image(t, "other")
	r.Push("moved:latest", good)
	n.daemon.SetFault(func(call string, _ proto.Message, done bool) error {
		if call == "Load" && !done {
			r.Push("moved:latest", other)
		}
		return nil
	})
	url := r.Address + "/moved:latest"
	n.create(n.ofImage("moved", url, v1alpha1.PullAlways))
	n.loadedFrom("moved", r.Address+"/moved@"+digestOf(t, good), v1alpha1.BpfProgramBytecode{Image: url, Digest: digestOf(t, good)})
}

// For an index, the daemon gets the manifest for this machine, and the report contains
// both digests.
func TestImageOfAnIndex(t *testing.T) {
	n := start(t)
	r := registry.Serve(t, nil, authority)
	here := image(t, "here")
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: image(t, "elsewhere"), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "other"}}},
		mutate.IndexAddendum{Add: here, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: runtime.GOARCH}}})
	r.Push("index:latest", index)
	url := r.Address + "/index"
	n.create(n.ofImage("index", url, ""))
	n.loadedFrom("index", r.Address+"/index@"+digestOf(t, here), v1alpha1.BpfProgramBytecode{Image: url, Digest: digestOf(t, index), Manifest: digestOf(t, here)})
}

// The pull policies IfNotPresent and Never use the node's image, even after a restart of
// the agent and without a registry. Always uses the registry each time.
func TestPullPoliciesByDigest(t *testing.T) {
	n := start(t)
	r := registry.Serve(t, nil, authority)
	first, second := image(t, "first"), image(t, "second")
	r.Push("policy:latest", first)
	url := r.Address + "/policy:latest"
	from := func(name string, image v1.Image) {
		t.Helper()
		n.loadedFrom(name, r.Address+"/policy@"+digestOf(t, image), v1alpha1.BpfProgramBytecode{Image: url, Digest: digestOf(t, image)})
	}

	n.create(n.ofImage("never-before", url, v1alpha1.PullNever))
	n.says("never-before", v1alpha1.BpfProgCondBytecodeSelectorError, "image "+url+" isn't on this node, and the pull policy is Never")
	if got := n.reads(); got > 0 {
		t.Errorf("read %d times", got)
	}
	n.create(n.ofImage("present", url, v1alpha1.PullIfNotPresent))
	from("present", first)
	from("never-before", first)

	r.Push("policy:latest", second)
	n.crash()
	n.startAgent()
	n.create(n.ofImage("still", url, v1alpha1.PullIfNotPresent))
	from("still", first)
	n.create(n.ofImage("always", url, v1alpha1.PullAlways))
	from("always", second)

	r.Stop()
	n.create(n.ofImage("down", url, v1alpha1.PullIfNotPresent))
	from("down", second) // what was last read
	n.create(n.ofImage("down-always", url, v1alpha1.PullAlways))
	n.says("down-always", v1alpha1.BpfProgCondBytecodeSelectorError, "image "+url+": ")
	r.Start()
	from("down-always", second)
}

// After a reboot, programs are loaded from the node's disk, without a registry. Without
// the files, they are loaded when the registry returns.
func TestRebootWithoutRegistry(t *testing.T) {
	n := start(t)
	r := registry.Serve(t, nil, authority)
	signed := image(t, "signed")
	r.Push("reboot:v1", signed)
	n.sign(digestOf(t, signed), "team")
	n.create(n.signedBy("reboot-signed", r.Address+"/**"))
	url := r.Address + "/reboot:v1"
	from := func(name string) {
		t.Helper()
		n.loadedFrom(name, r.Address+"/reboot@"+digestOf(t, signed), v1alpha1.BpfProgramBytecode{Image: url, Digest: digestOf(t, signed)})
	}
	n.create(n.ofImage("reboot", url, ""))
	from("reboot")
	n.verdict("reboot", "reboot-signed", v1alpha1.VerdictAllowed)

	r.Stop()
	before := n.reads()
	n.reboot()
	from("reboot")
	n.verdict("reboot", "reboot-signed", v1alpha1.VerdictAllowed)
	if got := n.reads(); got != before {
		t.Errorf("read %d times more", got-before)
	}

	n.crash()
	must.Succeed(t, os.RemoveAll(filepath.Join(n.store, "images")))
	n.reboot()
	n.says("reboot", v1alpha1.BpfProgCondBytecodeSelectorError, "image "+url+": ")
	r.Start()
	from("reboot")
}

// A registry that fails is asked less often each time, and nothing is reported while it is
// asked. When it returns, the program is loaded.
func TestFailingRegistryIsAskedLessOften(t *testing.T) {
	const reads = 6
	n := start(t)
	at := make(chan time.Time, 100*reads)
	n.mu.Lock()
	n.unread = "no route to host"
	n.onRead = func(context.Context) { at <- time.Now() }
	n.mu.Unlock()
	n.create(n.ofImage("failing", "127.0.0.1:1/failing", v1alpha1.PullAlways))
	n.says("failing", v1alpha1.BpfProgCondBytecodeSelectorError, "image 127.0.0.1:1/failing: no route to host")
	n.backsOff(at, reads, 200*time.Millisecond)
	reports := 0
	for _, w := range n.writesOf() {
		if strings.Contains(w, "/bpfprograms") {
			reports++
		}
	}
	if reports != 2 { // its creation and its status
		t.Errorf("it is written %d times", reports)
	}
	n.mu.Lock()
	n.unread = ""
	n.mu.Unlock()
	n.holds("TracepointProgram/failing f a/failing")
}

// An image that takes long to read isn't reported for five seconds. Then the report says
// what the agent waits for. It isn't a failure.
func TestSlowRegistry(t *testing.T) {
	t.Parallel()
	n := start(t)
	release := make(chan struct{})
	n.mu.Lock()
	n.onRead = func(ctx context.Context) {
		select {
		case <-release:
		case <-ctx.Done():
		}
	}
	n.mu.Unlock()
	began := time.Now()
	n.create(n.ofImage("slow", "127.0.0.1:1/slow", ""))
	n.says("slow", v1alpha1.BpfProgCondNone, "image 127.0.0.1:1/slow: waiting for its registry")
	if took := time.Since(began); took < 5*time.Second {
		t.Errorf("reported after %s", took)
	}
	// Others don't wait.
	n.create(n.tracepoint("other", "g", "b/y"))
	n.says("other", v1alpha1.BpfProgCondLoaded, "")
	close(release)
	n.holds("TracepointProgram/slow f a/slow", "TracepointProgram/other g b/y")
}

// Programs that an earlier version of the agent loaded aren't reloaded. Their images are
// stored, so that the next reboot needs no registry.
func TestImagesOfAnEarlierAgent(t *testing.T) {
	n := start(t)
	r := registry.Serve(t, nil, authority)
	known, another := image(t, "known"), image(t, "another")
	r.Push("earlier:v1", known)
	r.Push("earlier:unknown", known)
	n.daemon.SetFault(func(_ string, request proto.Message, done bool) error {
		if load, is := request.(*gobpfman.LoadRequest); is && !done && strings.HasSuffix(load.GetMetadata()[v1alpha1.MetadataImage], ":unknown") {
			delete(load.GetMetadata(), v1alpha1.MetadataDigest) // the daemon pulled by tag
			delete(load.GetMetadata(), v1alpha1.MetadataManifest)
		}
		return nil
	})
	url := r.Address + "/earlier:v1"
	n.create(n.ofImage("earlier", url, ""))
	n.create(n.ofImage("unknown", r.Address+"/earlier:unknown", ""))
	n.loadedFrom("earlier", r.Address+"/earlier@"+digestOf(t, known), v1alpha1.BpfProgramBytecode{Image: url, Digest: digestOf(t, known)})
	n.holds("TracepointProgram/earlier f a/earlier", "TracepointProgram/unknown f a/unknown")
	programs := n.daemon.Programs()

	n.crash()
	must.Succeed(t, errors.Join(os.RemoveAll(n.store), os.Mkdir(n.store, 0o750)))
	r.Push("earlier:v1", another)
	r.Push("earlier:unknown", another)
	n.startAgent()
	path := filepath.Join(n.store, "images", r.Address, "earlier@"+digestOf(t, known)+".o")
	n.eventually("the image to be stored", func() error {
		_, err := os.Stat(path)
		return err
	})
	n.holds("TracepointProgram/earlier f a/earlier", "TracepointProgram/unknown f a/unknown")
	for i, p := range n.daemon.Programs() {
		if p.ID != programs[i].ID {
			t.Errorf("program %d became %d", programs[i].ID, p.ID)
		}
	}
}
