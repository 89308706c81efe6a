// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package agent

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/bytecodeimage"
	"github.com/bpfman/bpfman-operator/tests/registry"
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

// loadedFrom waits until the daemon has loaded an owner's program from an image, and the
// report says so.
func (n *node) loadedFrom(owner, reference string, want v1alpha1.BpfProgramBytecode) {
	n.t.Helper()
	n.eventually(owner+" from "+reference, func() error {
		var from []string
		for _, p := range n.daemon.Programs() {
			if p.Metadata[v1alpha1.MetadataProgramName] == owner {
				from = append(from, p.Image)
			}
		}
		if len(from) != 1 || from[0] != reference {
			return fmt.Errorf("loaded from %q", from)
		}
		objects, err := n.programs()
		if err != nil {
			return err
		}
		for _, o := range objects {
			if ref := metav1.GetControllerOf(o); ref == nil || ref.Name != owner {
				continue
			}
			if b := o.GetStatus().Bytecode; b == nil || b.Image != want.Image || b.Digest != want.Digest || b.Manifest != want.Manifest {
				return fmt.Errorf("status.bytecode %+v", b)
			}
			return nil
		}
		return errors.New("no object tells of it")
	})
}

// If a tag moves after the agent has resolved it and before the daemon's Load, the
// daemon still gets the digest that the agent resolved.
func TestTagMovedBetweenLookAndLoad(t *testing.T) {
	n := start(t)
	r := registry.Serve(t, nil, authority)
	good, other := image(t, "good"), image(t, "other")
	r.Push("moved:latest", good)
	n.daemon.Images = map[string]bool{}
	n.daemon.Fault = func(call string, _ proto.Message, done bool) error {
		if call == "Load" && !done {
			r.Push("moved:latest", other)
		}
		return nil
	}
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

// The pull policies IfNotPresent and Never use the node's image, also after a restart of
// the agent and without a registry. Always uses the registry each time.
func TestPullPoliciesByDigest(t *testing.T) {
	n := start(t)
	r := registry.Serve(t, nil, authority)
	first, second := image(t, "first"), image(t, "second")
	r.Push("policy:latest", first)
	n.daemon.Images = map[string]bool{}
	url := r.Address + "/policy:latest"
	from := func(name string, image v1.Image) {
		t.Helper()
		n.loadedFrom(name, r.Address+"/policy@"+digestOf(t, image), v1alpha1.BpfProgramBytecode{Image: url, Digest: digestOf(t, image)})
	}

	n.create(n.ofImage("never-before", url, v1alpha1.PullNever))
	n.says("never-before", v1alpha1.BpfProgCondNotLoaded, "load f from image "+url+": BytecodeImage not found")
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
	from("down", second) // the last pulled image
	n.create(n.ofImage("down-always", url, v1alpha1.PullAlways))
	n.says("down-always", v1alpha1.BpfProgCondBytecodeSelectorError, "image "+url+": ")

	// What the daemon no longer has, for example after a reboot, is resolved again.
	n.daemon.ForgetImages()
	n.create(n.ofImage("forgotten", url, v1alpha1.PullIfNotPresent))
	n.says("forgotten", v1alpha1.BpfProgCondBytecodeSelectorError, "fall back to the image on the node: load f from image "+url)
	r.Push("policy:latest", first)
	r.Start()
	from("forgotten", first)
}

// Images that an earlier version of the agent pulled by tag aren't reloaded, and work
// without the registry.
func TestImagesOfAnEarlierAgent(t *testing.T) {
	n := start(t)
	r := registry.Serve(t, nil, authority)
	r.Stop()
	url := r.Address + "/earlier:latest"
	n.daemon.Images = map[string]bool{url: true}
	n.create(n.ofImage("earlier", url, v1alpha1.PullIfNotPresent))
	n.loadedFrom("earlier", url, v1alpha1.BpfProgramBytecode{Image: url})
	id := n.daemon.Programs()[0].ID

	r.Push("earlier:latest", image(t, "another"))
	r.Start()
	n.crash()
	n.startAgent()
	n.holds("TracepointProgram/earlier f a/earlier")
	if got := n.daemon.Programs()[0].ID; got != id {
		t.Errorf("program %d became %d", id, got)
	}
}
