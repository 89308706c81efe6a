// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package bytecodesource

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// An object that the daemon's loader can't load is adapted to the node's kernel. A function for which bpfman has no kind
// is refused without asking the daemon. An upgrade from a version that didn't adapt objects reloads nothing, and needs no
// registry to load more programs from the object.
func TestAdaptedBytecode(t *testing.T) {
	n := start(t)
	n.Push("libbpf:latest", build(t, "written_for_libbpf"))
	program := func(name, function string, policy v1alpha1.PullPolicy) *v1alpha1.TracepointProgram {
		o := &v1alpha1.TracepointProgram{ObjectMeta: metav1.ObjectMeta{Name: name}}
		o.Spec.BpfFunctionName, o.Spec.Names = function, []string{"syscalls/sys_enter_kill"}
		o.Spec.NodeSelector.MatchLabels = map[string]string{"test": n.name}
		o.Spec.ByteCode = n.image("libbpf:latest", policy)
		return o
	}
	loads := func(name string) int {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.loads[name]
	}
	first, unusable := program("adapted", "kill_without_signal", v1alpha1.PullIfNotPresent), program("unusable", "list_tasks", v1alpha1.PullIfNotPresent)
	n.create(first)
	id := n.loaded(first)
	n.create(unusable)
	n.fails(unusable, v1alpha1.BpfProgCondNotLoaded, `function list_tasks can't be loaded: it is in section "iter/task", and bpfman has no kind for programs of type "iter"`)
	if got := loads(unusable.Name); got > 0 {
		t.Errorf("the daemon was asked %d times to load what it can't", got)
	}

	n.stop()
	records, _ := filepath.Glob(filepath.Join(n.store.Dir, "images", "*", "libbpf@sha256:*.json"))
	adapted, _ := filepath.Glob(filepath.Join(n.store.Dir, "images", "*", "libbpf@sha256:*.adapted.o"))
	if len(records) != 1 || len(adapted) != 1 {
		t.Fatalf("%q, %q", records, adapted)
	}
	var record map[string]any
	content, err := os.ReadFile(records[0])
	if err == nil {
		err = json.Unmarshal(content, &record)
	}
	delete(record, "adapted")
	earlier, failed := json.Marshal(record)
	must.Succeed(t, errors.Join(err, failed, os.WriteFile(records[0], earlier, 0o600), os.Remove(adapted[0])))
	n.Stop() // the registry
	n.startAgent()
	n.eventually("the adapted object", func(context.Context) error {
		_, err := os.Stat(adapted[0])
		return err
	})
	second := program("adapted-second", "kill_without_signal", v1alpha1.PullNever)
	n.create(second)
	n.loaded(second)
	if got := n.loaded(first); got != id || loads(first.Name) != 1 {
		t.Errorf("program %d became %d, after %d loads", id, got, loads(first.Name))
	}
}
