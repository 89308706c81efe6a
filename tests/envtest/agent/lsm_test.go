// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package agent

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
)

// The daemon in Rust has no LSM programs, and the report says which daemon the program needs. After the node's daemon was
// changed, the program is loaded and attached. Its hook is fixed when it is loaded.
func TestLSM(t *testing.T) {
	t.Parallel()
	n := start(t)
	o := &v1alpha1.LsmProgram{ObjectMeta: metav1.ObjectMeta{Name: "hooked"}}
	o.Spec.BpfFunctionName, o.Spec.HookName = "f", "file_open"
	n.fill(&o.Spec.BpfAppCommon)
	n.create(o)
	n.eventually("a report that names the daemon", func() error {
		for _, r := range n.reportsOn(o.Name) {
			if c := r.GetStatus().Conditions; len(c) > 0 && c[0].Type == string(v1alpha1.BpfProgCondNotLoaded) && strings.Contains(c[0].Message, "it needs the daemon in Go") {
				return nil
			}
		}
		return fmt.Errorf("the reports are %v", n.reportsOn(o.Name))
	})
	if loaded := n.daemon.Programs(); len(loaded) > 0 {
		t.Errorf("the daemon has %+v", loaded)
	}
	n.crash()
	n.daemon = daemontest.NewGo(t.TempDir())
	n.startAgent()
	n.holds("LsmProgram/hooked f ")
	n.attachedTo(o.Name, "file_open")
	before := n.daemon.Programs()[0].ID
	n.change(o, func() { o.Spec.HookName = "task_kill" })
	n.attachedTo(o.Name, "task_kill")
	n.holds("LsmProgram/hooked f ")
	if after := n.daemon.Programs()[0].ID; after == before {
		t.Error("the program wasn't loaded for its other hook")
	}
	n.change(o, func() { o.Spec.Attach = new(false) })
	n.holds("LsmProgram/hooked f")
	n.delete(o)
	n.holds()
}

// attachedTo waits until the only link in an owner's report is at a hook.
func (n *node) attachedTo(owner, hook string) {
	n.t.Helper()
	n.eventually(owner+" at "+hook, func() error {
		reports := n.reportsOn(owner)
		if len(reports) != 1 || len(reports[0].GetStatus().Links) != 1 || reports[0].GetStatus().Links[0].AttachPoint != hook {
			return fmt.Errorf("the reports are %v", reports)
		}
		return nil
	})
}
