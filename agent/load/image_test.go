// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package load

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/agent/bytecode"
	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/gate"
	"github.com/bpfman/bpfman-operator/agent/plan"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/agent/report"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
	"github.com/bpfman/bpfman-operator/internal/policy"
	"github.com/bpfman/bpfman-operator/internal/reader"
	"github.com/bpfman/bpfman-operator/internal/verifierlog"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

const (
	imageURL = "quay.io/a:v1"
	// quiet is how long the reports say nothing about an image that is being read.
	quiet = 5 * time.Second
)

// node is a Loader with its daemon. Images are read after a
// while.
type node struct {
	*Loader

	t      *testing.T
	daemon *daemontest.Daemon
	takes  time.Duration
	reads  int
	// signers are the authorities that signed each image.
	signers []string
	// enqueued are the owners whose images were read.
	enqueued         chan program.Key
	requireSignature bool
	alter            func(*reader.Answer)
	edit             func(*program.Owner)
}

func newNode(t *testing.T) *node {
	t.Helper()
	l := &node{t: t, daemon: daemontest.New(t.TempDir()), enqueued: make(chan program.Key, 100)}
	l.Loader = New(Options{Inventory: daemon.NewInventory(l.daemon, ""), Bytecode: &bytecode.Library{
		Read: func(ctx context.Context, request *reader.Request, files *bytecode.Files) reader.Answer {
			select {
			case <-time.After(l.takes):
			case <-ctx.Done():
			}
			answer := l.read(request, files)
			if ctx.Err() == nil {
				l.reads++
			}
			if l.alter != nil {
				l.alter(&answer)
			}
			return answer
		},
		Store: &bytecode.Store{Dir: t.TempDir(), Limit: 1000},
	}, Logs: verifierlog.Store{Dir: t.TempDir()}})
	return l
}

// digest is the digest of all images.
var digest = "sha256:" + strings.Repeat("a", 64)

// read reads an image with an object of few bytes.
func (l *node) read(request *reader.Request, files *bytecode.Files) reader.Answer {
	const content = "an object"
	answer := reader.Answer{Digest: digest, Manifest: digest}
	if request.Object && request.Have != digest {
		if _, err := files.Object.WriteString(content); err != nil {
			l.t.Error(err)
		}
		sum := sha256.Sum256([]byte(content))
		digest := "sha256:" + hex.EncodeToString(sum[:])
		answer.Object = &reader.Object{Digest: digest, Size: int64(len(content)), License: "GPL", Adapted: reader.Adapted{Digest: digest, Format: reader.Format}}
	}
	for _, authority := range request.Authorities {
		finding := reader.Finding{Authority: authority.Name, Reason: "no signature"}
		if _, name, _ := strings.Cut(authority.Name, "/"); slices.Contains(l.signers, name) {
			finding = reader.Finding{Authority: authority.Name, Signer: "SHA256:" + name}
		}
		answer.Signatures = append(answer.Signatures, finding)
	}
	return answer
}

// owned returns the owner of a test.
func owned() program.Owner {
	o := &v1alpha1.XdpProgram{ObjectMeta: metav1.ObjectMeta{Name: "x", UID: "uid", Generation: 1}}
	o.Spec.BpfFunctionName = "f"
	o.Spec.ByteCode.Image = &v1alpha1.BytecodeImage{Url: imageURL}
	return program.OwnerOf("XdpProgram", o)
}

// policies are those of a cluster without Secrets and ConfigMaps.
type policies []*v1alpha1.BytecodePolicy

func (p policies) Policies() ([]*v1alpha1.BytecodePolicy, error) { return p, nil }

func (policies) Secret(context.Context, string, string) (*corev1.Secret, error) {
	return nil, errors.New("no Secret")
}

func (policies) ConfigMap(context.Context, string, string) (*corev1.ConfigMap, error) {
	return nil, errors.New("no ConfigMap")
}

// load loads with a new gate, and returns how long reports have to wait.
func (l *node) load(all ...*v1alpha1.BytecodePolicy) (report.Judgement, time.Duration, error) {
	l.t.Helper()
	owner := owned()
	if l.edit != nil {
		l.edit(&owner)
	}
	owner.Subject.Image, owner.Subject.ImageError = policy.ParseImage(owner.Bytecode)
	gates := &gate.Policies{Cluster: policies(all), Bytecode: l.Bytecode, RequireSignature: l.requireSignature, Read: func(key program.Key) { l.enqueued <- key }}
	g, err := gates.For(l.t.Context(), &owner, gate.Earlier{})
	if err != nil {
		l.t.Fatal(err)
	}
	judgement, err := l.Loader.load(l.t.Context(), owner, plan.Want(owner, program.Node{}, nil), 0, g)
	return judgement, g.Waits(), err
}

// loaded returns the files of the daemon's programs.
func (l *node) loaded() []string {
	var all []string
	for _, p := range l.daemon.Programs() {
		all = append(all, p.File)
	}
	return all
}

// A slow image isn't reported for five seconds. Then the report says what the agent waits
// for. When the image was read, the owner is enqueued, and what was read is loaded.
func TestQuietWhileImagesAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newNode(t)
		l.takes = 8 * time.Second
		if _, waits, err := l.load(); waits != quiet || err == nil {
			t.Errorf("it waits %s: %v", waits, err)
		}
		const wait = "image " + imageURL + ": waiting for its registry"
		<-time.After(3 * time.Second)
		if _, waits, err := l.load(); waits != quiet-3*time.Second || err == nil || err.Error() != wait {
			t.Errorf("it waits %s: %v", waits, err)
		}
		<-time.After(3 * time.Second)
		var about *report.BytecodeError
		if _, waits, err := l.load(); waits != 0 || !errors.As(err, &about) || err.Error() != wait {
			t.Errorf("it waits %s: %v", waits, err)
		}
		if len(l.enqueued) > 0 {
			t.Error("the owner is enqueued too early")
		}
		<-time.After(3 * time.Second)
		synctest.Wait()
		if key := <-l.enqueued; key != owned().Key {
			t.Errorf("%s is enqueued", key)
		}
		judgement, waits, err := l.load()
		if err != nil || waits != 0 || judgement.Image.Digest == "" || l.reads != 1 {
			t.Errorf("it waits %s: %v; %+v; %d reads", waits, err, judgement, l.reads)
		}
		want := filepath.Join(l.Bytecode.Store.Dir, "images/quay.io/a@"+digest+".o")
		if got := l.loaded(); len(got) != 1 || got[0] != want {
			t.Errorf("loaded %q, want %s", got, want)
		}
	})
}

// settle loads until the image was read.
func (l *node) settle(policies ...*v1alpha1.BytecodePolicy) (report.Judgement, error) {
	l.t.Helper()
	for {
		judgement, waits, err := l.load(policies...)
		if waits == 0 {
			return judgement, err
		}
		<-time.After(l.takes + time.Millisecond)
		synctest.Wait()
	}
}

// signedByTeam returns a policy that requires a signature.
func signedByTeam(mode v1alpha1.PolicyMode) *v1alpha1.BytecodePolicy {
	const key = "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE8nXRh950IZbRj8Ra/N9sbqOPZrfM\n5/KAQN0/KjHcorm/J5yctVd7iEcnessRQjU917hmKO6JWVGHpDguIyakZA==\n-----END PUBLIC KEY-----\n"
	return &v1alpha1.BytecodePolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec: v1alpha1.BytecodePolicySpec{
			Mode:        mode,
			Rules:       []v1alpha1.BytecodeRule{{Name: "signed", Images: []string{"**"}, SignedBy: []string{"team"}}},
			Authorities: []v1alpha1.BytecodeAuthority{{Name: "team", Key: &v1alpha1.AuthorityKey{PEM: key}}},
		},
	}
}

// required begins the message about images without such a policy.
const required = "bpfman.toml has verify_enabled = true and allow_unsigned = false"

// If bpfman.toml requires signatures, images need a policy in mode enforce that does.
func TestRequirePolicy(t *testing.T) {
	unsigned := signedByTeam(v1alpha1.PolicyEnforce)
	unsigned.Spec.Rules[0].SignedBy = nil
	another := signedByTeam(v1alpha1.PolicyEnforce)
	another.Spec.Rules[0].Images = []string{"ghcr.io/**"}
	for name, c := range map[string]struct {
		policy   *v1alpha1.BytecodePolicy
		required bool
		signers  []string
		want     string
	}{
		"not required, no policy": {nil, false, nil, ""},
		"no policy":               {nil, true, nil, required},
		"mode warn":               {signedByTeam(v1alpha1.PolicyWarn), true, []string{"team"}, required},
		"no signature required":   {unsigned, true, []string{"team"}, required},
		"unsigned":                {signedByTeam(v1alpha1.PolicyEnforce), true, nil, "policy p: rule signed: "},
		"signed":                  {signedByTeam(v1alpha1.PolicyEnforce), true, []string{"team"}, ""},
		"another image":           {another, true, []string{"team"}, required},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newNode(t)
				l.requireSignature, l.signers = c.required, c.signers
				var policies []*v1alpha1.BytecodePolicy
				if c.policy != nil {
					policies = append(policies, c.policy)
				}
				_, err := l.settle(policies...)
				denied := (*report.PolicyError)(nil)
				if c.want == "" && err != nil || c.want != "" && (!errors.As(err, &denied) || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("%v, want %q", err, c.want)
				}
				if got := len(l.loaded()); got > 0 != (c.want == "") {
					t.Errorf("%d programs", got)
				}
				if c.want == required && l.reads > 0 {
					t.Error("the image was read")
				}
			})
		})
	}
}

// A function that the object is known to lack is reported without asking the daemon.
func TestMissingFunctions(t *testing.T) {
	var many []string
	for n := range 25 {
		many = append(many, fmt.Sprintf("f%02d", n))
	}
	for name, c := range map[string]struct {
		have, wanted   []string
		unusable, want string // the first function's reason
	}{
		"all there":      {[]string{"f", "g"}, []string{"g"}, "", ""},
		"one is missing": {[]string{"f", "g"}, []string{"f", "h"}, "", "the bytecode has no function h; its functions are f, g, when loading from image " + imageURL},
		"two":            {[]string{"f"}, []string{"a", "f", "h"}, "", "the bytecode has no function a, h; its functions are f, when loading from image " + imageURL},
		"unusable":       {[]string{"f", "g"}, []string{"f", "g"}, "it has the wrong type", "function f can't be loaded: it has the wrong type, when loading from image " + imageURL},
		"another one is": {[]string{"f", "g"}, []string{"g"}, "it has the wrong type", ""},
		"unknown":        {nil, []string{"f"}, "", ""},
		"a long list":    {many, []string{"f"}, "", "the bytecode has no function f; its functions are " + strings.Join(many[:20], ", ") + ", and 5 more, when loading from image " + imageURL},
	} {
		t.Run(name, func(t *testing.T) {
			found := bytecode.Bytecode{Image: bytecode.Image{Reference: imageURL}}
			for _, have := range c.have {
				found.Object.Functions = append(found.Object.Functions, reader.Function{Name: have, Section: "xdp"})
			}
			if c.unusable != "" {
				found.Object.Functions[0].Unusable = c.unusable
			}
			request := &gobpfman.LoadRequest{}
			for _, wanted := range c.wanted {
				request.Info = append(request.Info, &gobpfman.LoadInfo{Name: wanted})
			}
			if err := missing(request, found); (err == nil) != (c.want == "") || err != nil && err.Error() != c.want {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		l := newNode(t)
		l.alter = func(a *reader.Answer) {
			if a.Object != nil {
				a.Object.Functions = []reader.Function{{Name: "g"}}
			}
		}
		if _, err := l.settle(); err == nil || !strings.Contains(err.Error(), "has no function f; its functions are g") {
			t.Errorf("%v", err)
		}
		if calls := l.daemon.Calls(); len(calls) > 0 {
			t.Errorf("asked the daemon to %q", calls)
		}
	})
}

// A Load that the daemon refuses for good isn't repeated immediately.
func TestRefusedImages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newNode(t)
		l.daemon.Fault = func(string, proto.Message, bool) error {
			return status.Error(codes.Aborted, "error parsing BPF object: no")
		}
		for range 5 {
			if _, err := l.settle(); err == nil || err.Error() != "error parsing BPF object: no, when loading f from image "+imageURL {
				t.Errorf("%v", err)
			}
		}
		if calls := l.daemon.Calls(); len(calls) != 1 {
			t.Errorf("%q", calls)
		}
		l.daemon.Fault = nil
		l.Retry()
		if _, err := l.settle(); err != nil {
			t.Error(err)
		}
	})
}

// What can't be read is about the bytecode, and what can't be verified is about policies.
func TestUnreadableImages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newNode(t)
		p := signedByTeam(v1alpha1.PolicyEnforce)
		l.alter = func(a *reader.Answer) { *a = reader.Answer{Error: "no route to host"} }
		about, denied := (*report.BytecodeError)(nil), (*report.PolicyError)(nil)
		if _, err := l.settle(p); !errors.As(err, &about) || err.Error() != "image "+imageURL+": no route to host" {
			t.Errorf("%T: %v", err, err)
		}
		fail := l.alter
		l.alter = nil
		if _, err := l.settle(p); !errors.As(err, &denied) { // unsigned, but stored
			t.Errorf("%T: %v", err, err)
		}
		l.alter = fail
		<-time.After(time.Minute)
		judgement, err := l.settle(p)
		if !errors.As(err, &denied) || !strings.Contains(err.Error(), "no route to host") || judgement.Policies[0].Verdict != v1alpha1.VerdictUnknown {
			t.Errorf("%T: %v, %+v", err, err, judgement)
		}
		if got := l.loaded(); len(got) > 0 {
			t.Errorf("loaded %q", got)
		}
	})
}

// While the signatures of an image that the node has are read, nothing has been denied.
func TestSignaturesAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newNode(t)
		if _, err := l.settle(); err != nil {
			t.Fatal(err)
		}
		l.takes = 20 * time.Second
		p := signedByTeam(v1alpha1.PolicyEnforce)
		_, _, _ = l.load(p)
		<-time.After(2 * quiet)
		pending, denied := (*bytecode.PendingError)(nil), (*report.PolicyError)(nil)
		if _, waits, err := l.load(p); waits != 0 || !errors.As(err, &pending) || errors.As(err, &denied) {
			t.Errorf("it waits %s: %T: %v", waits, err, err)
		}
		<-time.After(20 * time.Second)
		synctest.Wait()
		if _, err := l.settle(p); !errors.As(err, &denied) {
			t.Errorf("%T: %v", err, err)
		}
	})
}

// The section of a function decides whether it is a return probe, as the daemon of v0.6.0 reads it.
func TestReturnProbes(t *testing.T) {
	functions := map[string]string{
		"a": "uretprobe", "b": "uretprobe.s//bin/sh:f", "c": "kretprobe/do_unlinkat", "d": "kretsyscall/kill", "e": "uprobe", "f": "kprobe.multi/x", "other": "uretprobe",
	}
	request := &gobpfman.LoadRequest{Metadata: map[string]string{v1alpha1.MetadataActualType + "e": "uretprobe"}}
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		request.Info = append(request.Info, &gobpfman.LoadInfo{Name: name})
	}
	for name, section := range functions {
		setActualType(request, reader.Function{Name: name, Section: section})
	}
	want := map[string]string{}
	for name, probe := range map[string]string{"a": "uretprobe", "b": "uretprobe", "c": "kretprobe", "d": "kretprobe"} {
		want[v1alpha1.MetadataActualType+name] = probe
	}
	if !maps.Equal(request.GetMetadata(), want) {
		t.Errorf("%v, want %v", request.GetMetadata(), want)
	}
}
