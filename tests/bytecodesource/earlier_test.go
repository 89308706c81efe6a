// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package bytecodesource

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"testing"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// earlierImage is the image that the daemon pulls in TestProgramOfAnEarlierVersion.
const earlierImage = "earlier:latest"

// A program that an earlier version had the daemon load from an image stays loaded, with its
// id and maps, after an upgrade and back. Its image gets into the store.
func TestProgramOfAnEarlierVersion(t *testing.T) {
	n := start(t, "SSL_CERT_FILE="+authorityFile)
	n.Push(earlierImage, build(t, "go-tcx-counter"))
	n.mu.Lock()
	n.earlier = true
	n.mu.Unlock()
	o := n.program("earlier", n.image(earlierImage, v1alpha1.PullIfNotPresent))
	o.Spec.BpfFunctionName = "tcx_stats"
	n.create(o)
	id := n.loaded(o)
	pins := n.reports(o, "loaded", func(*v1alpha1.BpfProgram) error { return nil }).Spec.Maps

	n.stop()
	must.Succeed(t, n.store.Clear())
	for _, version := range []struct {
		name    string
		earlier bool
	}{{"upgrade", false}, {"back", true}} {
		n.mu.Lock()
		n.earlier = version.earlier
		n.mu.Unlock()
		n.startAgent()
		n.eventually("the image in the store", func(context.Context) error {
			if files, err := filepath.Glob(filepath.Join(n.store.Dir, "images", "*", "earlier@sha256:*.o")); err != nil || len(files) != 1 {
				return errors.New("it isn't there")
			}
			return nil
		})
		report := n.reports(o, "loaded", func(*v1alpha1.BpfProgram) error { return nil })
		if report.Status.ProgramID != id || !maps.Equal(report.Spec.Maps, pins) || len(pins) == 0 {
			t.Errorf("%s: program %d with maps %v became %d with %v", version.name, id, pins, report.Status.ProgramID, report.Spec.Maps)
		}
		n.stop()
	}
	n.startAgent()
	n.Stop()
	second := n.program("earlier-second", n.image(earlierImage, v1alpha1.PullIfNotPresent))
	second.Spec.BpfFunctionName = "tcx_stats"
	n.mu.Lock()
	n.earlier = false
	n.mu.Unlock()
	n.create(second)
	n.loaded(second) // from the store
}
