// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package tracefs

import (
	"strconv"
	"testing"
	"time"

	"github.com/bpfman/bpfman-operator/internal/prerequisite"
)

// New removes the instance of a killed process. It keeps an instance that is in use, or
// is about to be used.
func TestInstances(t *testing.T) {
	prerequisite.NeedsRoot(t, "tracefs is for root alone")
	root, err := mount()
	if err != nil {
		prerequisite.Missing(t, "mount it: "+err.Error(), prerequisite.Tracefs)
	}
	defer root.Close()
	used, err := New()
	if err != nil {
		prerequisite.Missing(t, "make an instance: "+err.Error(), prerequisite.Tracefs)
	}
	left := "instances/" + prefix + strconv.FormatInt(time.Now().Add(-time.Hour).UnixNano(), 36)
	made := "instances/" + prefix + strconv.FormatInt(time.Now().UnixNano(), 36)
	for _, name := range []string{left, made} {
		if err := root.Mkdir(name, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	defer func() { _ = root.Remove(made) }()
	another, err := New()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := root.Stat(left); err == nil {
		t.Error("what was left is still there")
	}
	for _, name := range []string{made, used.name, another.name} {
		if _, err := root.Stat(name); err != nil {
			t.Error(err)
		}
	}
	for _, i := range []*Instance{used, another} {
		if err := i.Close(); err != nil {
			t.Error(err)
		}
		if _, err := root.Stat(i.name); err == nil {
			t.Errorf("%s is still there", i.name)
		}
	}
}
