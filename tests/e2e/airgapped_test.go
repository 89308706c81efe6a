// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/e2e-framework/klient/decoder"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/operator/deploy"
	"github.com/bpfman/bpfman-operator/tests/configuration"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// TestWithoutInternet follows docs/air-gapped.md on a cluster that can only reach its own registry. With the
// page's ConfigMap, and the authority of the registry's certificate, the page's program is attached. Without
// either, the object shows the error on the page.
func TestWithoutInternet(t *testing.T) {
	requireType(t, "TCX")
	requirePush(t)
	if settings.pushCA == "" {
		prerequisite.Missing(t, "BYTECODE_PUSH_CA names no authority: the registry is known to everyone", prerequisite.Registry)
	}
	authority := must.Read(t, settings.pushCA)
	page, program := airGappedPage(t)
	page[deploy.KeyRegistryCA] = string(authority)
	program.Name = prefix + program.Name
	url := strings.Replace(program.Spec.ByteCode.Image.Url, "registry.example.com/bpfman-bytecode", settings.push+"/"+bytecodePrefix, 1)
	program.Spec.ByteCode.Image.Url = url
	feature(t,
		step{"another authority", func(ctx context.Context, s *testing.T) {
			restoreConfig(ctx, t)
			edit(ctx, s, map[string]string{deploy.KeyRegistryCA: configuration.Authority})
			create(ctx, t, program)
			awaitFailure(ctx, s, program, "certificate signed by unknown authority")
		}},
		step{"the page's configuration", func(ctx context.Context, s *testing.T) {
			edit(ctx, s, page)
			awaitSuccess(ctx, s, program)
		}},
		step{"with unsigned images refused", func(ctx context.Context, s *testing.T) {
			edit(ctx, s, map[string]string{deploy.KeyDaemonTOML: "[signing]\nallow_unsigned = false\n"})
			// The image is already loaded. Another object with the same image is loaded now.
			unsigned := program.DeepCopy()
			unsigned.ObjectMeta = named("unsigned")
			create(ctx, t, unsigned)
			awaitFailure(ctx, s, unsigned, "allow_unsigned = false", "BytecodePolicy")
		}},
	)
}

// airGappedPage returns the page's settings for the ConfigMap, and the page's program.
func airGappedPage(t *testing.T) (map[string]string, *v1alpha1.TcxProgram) {
	t.Helper()
	content := must.Read(t, "../../docs/air-gapped.md")
	var data map[string]string
	var program *v1alpha1.TcxProgram
	for _, block := range regexp.MustCompile("(?s)```yaml[^\n]*\n(.*?)```").FindAllSubmatch(content, -1) {
		object, err := decoder.DecodeAny(bytes.NewReader(block[1]))
		if err != nil {
			t.Fatalf("docs/air-gapped.md: %v in:\n%s", err, block[1])
		}
		switch o := object.(type) {
		case *corev1.ConfigMap:
			data = o.Data
		case *v1alpha1.TcxProgram:
			program = o
		}
	}
	if data == nil || program == nil {
		t.Fatal("docs/air-gapped.md has no ConfigMap, or no TcxProgram")
	}
	return data, program
}
