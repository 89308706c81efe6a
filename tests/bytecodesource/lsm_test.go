// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package bytecodesource

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/bpfman"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/tests/must"
	nodetest "github.com/bpfman/bpfman-operator/tests/node"
)

// An LsmProgram denies an operation on the node while its object exists. With the daemon in Rust, its report says which daemon
// it needs.
func TestLSMProgram(t *testing.T) {
	n := start(t)
	path, err := filepath.Abs(filepath.Join(objectDir, "lsm.o"))
	must.Succeed(t, err)
	o := &v1alpha1.LsmProgram{ObjectMeta: metav1.ObjectMeta{Name: "deny"}}
	o.Spec.BpfFunctionName, o.Spec.HookName = "deny_mkdir", "inode_mkdir"
	o.Spec.NodeSelector.MatchLabels = map[string]string{"test": n.name}
	o.Spec.ByteCode.Path = &path // reading an image takes too long in a virtual machine without KVM
	o.Spec.GlobalData = v1alpha1.GlobalData{"denied": append([]byte("denied-here"), 0, 0, 0, 0, 0)}
	n.create(o)
	daemon, err := bpfman.Recognize(t.Context(), n.Client)
	must.Succeed(t, err)
	if daemon == bpfman.Rust {
		n.fails(o, v1alpha1.BpfProgCondNotLoaded, "function deny_mkdir is an LSM program, which this node's bpfman daemon can't load: it needs the daemon in Go")
		return
	}
	report := n.reports(o, "attached or refused", func(r *v1alpha1.BpfProgram) error {
		c := r.Status.Conditions[0]
		attached := c.Type == string(v1alpha1.BpfProgCondLoaded) && len(r.Status.Links) == 1
		if !attached && !strings.Contains(c.Message, "when loading") {
			return fmt.Errorf("%s: %s, links %v", c.Type, c.Message, r.Status.Links)
		}
		return nil
	})
	if c := report.Status.Conditions[0]; c.Type != string(v1alpha1.BpfProgCondLoaded) {
		prerequisite.Missing(t, c.Message, prerequisite.LSM)
	}
	dir := t.TempDir()
	made := 0
	mkdir := func(name string) error {
		made++
		return nodetest.MakeDirectory(name, filepath.Join(dir, fmt.Sprint(name, made)))
	}
	denied := func(when string) {
		if err := mkdir("denied-here"); !errors.Is(err, os.ErrPermission) {
			t.Errorf("%s: %v, want it denied", when, err)
		}
		if err := mkdir("another"); err != nil {
			t.Errorf("%s, another process: %v", when, err)
		}
	}
	denied("attached")
	n.change(o, func() { o.Spec.HookName = "inode_mkdirs" })
	n.fails(o, v1alpha1.BpfProgCondNotLoaded, "this kernel has no hook inode_mkdirs for LSM programs; did you mean inode_mkdir?", "keeps running")
	denied("still attached")
	n.delete(o)
	n.eventually("the operation to be allowed", func(context.Context) error { return mkdir("denied-here") })
}
