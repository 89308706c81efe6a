// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	corev1 "k8s.io/api/core/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/bytecodeimage"
	"github.com/bpfman/bpfman-operator/internal/bpfman"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/tests/faultyimages"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// promptly is the maximum time to attach an object, no matter what happens to others.
const promptly = 10 * time.Second

// TestBadInput applies objects that can't work. The status names the node, what was
// attempted, and the daemon's error. Other objects aren't delayed. When the cause is
// fixed, the object works.
func TestBadInput(t *testing.T) {
	requireType(t, "TCX")
	const absent = "e2eabsent0"
	spec := func(change func(*v1alpha1.TcxProgramSpec)) func(context.Context, *testing.T, *v1alpha1.TcxProgram) {
		return func(ctx context.Context, t *testing.T, o *v1alpha1.TcxProgram) {
			modify(ctx, t, o, func(o *v1alpha1.TcxProgram) { change(&o.Spec) })
		}
	}
	good := tcx("good", "lo").Spec
	useGood := spec(func(s *v1alpha1.TcxProgramSpec) { s.ByteCode, s.BpfFunctionName = good.ByteCode, good.BpfFunctionName })
	path := "/absent/tcx_test.o"
	for _, c := range []struct {
		name string
		// needs is what must be pushed first, if anything.
		needs string
		spoil func(*v1alpha1.TcxProgramSpec)
		// says are parts of the condition: what was attempted, and the daemon's error.
		says []string
		mend func(context.Context, *testing.T, *v1alpha1.TcxProgram)
	}{
		{
			"missing-interface", "", func(s *v1alpha1.TcxProgramSpec) { s.InterfaceSelector.Interfaces = &[]string{absent} },
			[]string{"attach", absent},
			func(ctx context.Context, t *testing.T, _ *v1alpha1.TcxProgram) { addInterface(ctx, t, absent) },
		},
		{"wrong-function", "", func(s *v1alpha1.TcxProgramSpec) { s.BpfFunctionName = "absent" }, []string{"when loading from image", "the bytecode has no function absent"}, useGood},
		{
			"absent-path", "", func(s *v1alpha1.TcxProgramSpec) { s.ByteCode = v1alpha1.BytecodeSelector{Path: &path} },
			[]string{"o such file", "when loading tcx_next from", path},
			useGood,
		},
		{
			"rejected", "", func(s *v1alpha1.TcxProgramSpec) { s.ByteCode, s.BpfFunctionName = image("rejected"), "rejected" },
			[]string{"the kernel's verifier refuses the program: ", "R1 offset is outside of the packet", "when loading rejected from image"},
			useGood,
		},
		{
			"rejected-late", "", func(s *v1alpha1.TcxProgramSpec) {
				s.ByteCode, s.BpfFunctionName = image("rejected_late"), "rejected_late"
			},
			[]string{"R0 min value is outside of the allowed memory range", "when loading rejected_late from image"},
			useGood,
		},
		{
			"absent-image", "", func(s *v1alpha1.TcxProgramSpec) { s.ByteCode = image("e2e-absent") },
			[]string{"image ", "e2e-absent", "has no such image"},
			useGood,
		},
		{
			"image-of-no-bytecode", "fault-not-bytecode", func(s *v1alpha1.TcxProgramSpec) { s.ByteCode = image("fault-not-bytecode") },
			[]string{"fault-not-bytecode", "it isn't an ELF file"},
			useGood,
		},
		{
			"image-without-file", "fault-no-file", func(s *v1alpha1.TcxProgramSpec) { s.ByteCode = image("fault-no-file") },
			[]string{"fault-no-file", "contains no file"},
			useGood,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, neighbour := tcx("e2e-"+c.name, "lo"), tcx("e2e-beside-"+c.name, "lo")
			c.spoil(&o.Spec)
			feature(t,
				step{"says what is wrong", func(ctx context.Context, s *testing.T) {
					if c.needs != "" {
						pushFault(ctx, t, c.needs)
					}
					create(ctx, t, o)
					awaitFailure(ctx, s, o, c.says...)
					awaitEvent(ctx, s, o, corev1.EventTypeWarning, append(c.says, under.nodes()[0])...)
				}},
				step{"its whole log can be read", func(ctx context.Context, s *testing.T) {
					// The daemon in Go has only its end.
					if c.name == "rejected-late" && !slices.Contains(daemons(ctx, s), string(bpfman.Go)) {
						wholeLog(ctx, s, o)
					}
				}},
				step{"nobody waits for it", func(ctx context.Context, s *testing.T) {
					start := time.Now()
					create(ctx, t, neighbour)
					awaitSuccess(ctx, s, neighbour)
					if took := time.Since(start); took > promptly {
						s.Errorf("attached after %s, want at most %s", took, promptly)
					}
				}},
				step{"works once mended", func(ctx context.Context, s *testing.T) {
					c.mend(ctx, t, o)
					awaitSuccess(ctx, s, o)
					awaitEvent(ctx, s, o, corev1.EventTypeNormal, "")
				}},
			)
		})
	}
}

// wholeLog checks that kubectl bpfman why --log shows what the status leaves out of the verifier's log.
func wholeLog(ctx context.Context, s *testing.T, o *v1alpha1.TcxProgram) {
	s.Helper()
	const leftOut, verdict = "bytes left out", "R0 min value is outside of the allowed memory range"
	if short := plugin(ctx, s, "why", "tcxprogram", o.Name); !strings.Contains(short, leftOut) {
		s.Errorf("the status has the whole log, so nothing is tested:\n%s", short)
	}
	const instructions = 2000 // the program has 700 additions
	whole := plugin(ctx, s, "why", "tcxprogram", o.Name, "--log")
	if strings.Contains(whole, leftOut) || strings.Count(whole, "\n") < instructions || !strings.Contains(whole, verdict) {
		s.Errorf("the log has %d lines:\n%.2000s", strings.Count(whole, "\n"), whole)
	}
}

// TestImageThatComesLater pushes an image late. The program is then attached without a
// change of the object.
func TestImageThatComesLater(t *testing.T) {
	requireType(t, "TCX")
	requirePush(t)
	// A different name for each run, because a registry keeps images.
	late := "e2e-late-" + strings.ToLower(time.Now().UTC().Format("20060102T150405"))
	o := tcx("e2e-late", "lo")
	o.Spec.ByteCode = image(late)
	feature(t,
		step{"waits for the image", func(ctx context.Context, s *testing.T) {
			create(ctx, t, o)
			awaitFailure(ctx, s, o, late)
		}},
		step{"attaches once it is pushed", func(ctx context.Context, s *testing.T) {
			object, err := os.ReadFile("../../bin/bytecode/tcx_test.o")
			if err != nil {
				s.Fatalf("read the bytecode of `make bytecode`: %v", err)
			}
			img, err := bytecodeimage.ForArchitecture("tcx_test.o", object, runtime.GOARCH, time.Time{})
			if err != nil {
				s.Fatal(err)
			}
			push(ctx, s, late, img)
			awaitSuccess(ctx, s, o)
		}},
	)
}

// TestDeletedWithoutEverLoading deletes objects that were never loaded.
func TestDeletedWithoutEverLoading(t *testing.T) {
	feature(t, step{"leaves nothing", func(ctx context.Context, s *testing.T) {
		o := tcx("e2e-never", "e2eabsent1")
		o.Spec.ByteCode = image("e2e-absent")
		create(ctx, s, o)
		awaitFailure(ctx, s, o)
	}})
}

// addInterface creates a network interface on all nodes until the test ends.
func addInterface(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	for _, n := range under.nodes() {
		addInterfaceOn(ctx, t, n, name)
	}
}

// addInterfaceOn creates a network interface on one node until the test ends.
func addInterfaceOn(ctx context.Context, t *testing.T, node, name string) {
	t.Helper()
	if _, err := ask[any](ctx, node, "add-interface", name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeInterfaceOn(context.WithoutCancel(ctx), t, node, name) })
}

func removeInterface(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	for _, n := range under.nodes() {
		removeInterfaceOn(ctx, t, n, name)
	}
}

func removeInterfaceOn(ctx context.Context, t *testing.T, node, name string) {
	t.Helper()
	if _, err := ask[any](ctx, node, "remove-interface", name); err != nil {
		t.Error(err)
	}
}

// moveInterface moves an interface of the host to the network of the only process that
// runs the executable, on that process's node.
func moveInterface(ctx context.Context, t *testing.T, name, executable string) {
	t.Helper()
	var errs []error
	for _, n := range under.nodes() {
		_, err := ask[any](ctx, n, "move-interface", name, executable)
		if err == nil {
			return
		}
		errs = append(errs, err)
	}
	t.Fatal(errs)
}

func requirePush(t *testing.T) {
	t.Helper()
	if settings.push == "" {
		prerequisite.Missing(t, "BYTECODE_PUSH names none that this test may push to", prerequisite.Registry)
	}
}

func pushFault(ctx context.Context, t *testing.T, fault string) {
	t.Helper()
	requirePush(t)
	faults, err := faultyimages.All()
	if err != nil {
		t.Fatal(err)
	}
	push(ctx, t, fault, faults[fault])
}

func push(ctx context.Context, t *testing.T, repository string, img v1.Image) {
	t.Helper()
	ref, err := name.ParseReference(settings.push + "/" + bytecodePrefix + "/" + repository + ":latest")
	if err != nil {
		t.Fatal(err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:errcheck // it is documented to be one
	if settings.pushCA != "" {
		pem := must.Read(t, settings.pushCA)
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			t.Fatalf("no certificate in %s", settings.pushCA)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	if err := remote.Write(ref, img, remote.WithContext(ctx), remote.WithTransport(transport)); err != nil {
		t.Fatalf("push %s: %v", ref, err)
	}
}
