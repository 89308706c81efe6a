// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package kindcache

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/handler"
)

// A controller that runs already logs the sources that are added to it.
func TestSourceIsLogged(t *testing.T) {
	var out bytes.Buffer
	nodes := Source(nil, &corev1.Node{}, &handler.EnqueueRequestForObject{})
	logr.FromSlogHandler(slog.NewJSONHandler(&out, nil)).Info("Starting EventSource", "source", nodes)
	if want := `"source":"kind source: *v1.Node"`; !strings.Contains(out.String(), want) {
		t.Errorf("logged %s, want %s", out.String(), want)
	}
}
