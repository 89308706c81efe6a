// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package simulation

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/inspector/publish"
)

// SetConflicts sets the conflicts that the node's inspector finds.
func (n *Node) SetConflicts(conflicts ...v1alpha1.BpfNodeConflict) {
	n.mu.Lock()
	n.conflicts = conflicts
	n.mu.Unlock()
	n.programs.change()
}

// runInspector publishes the node's BpfNode until the process ends. What it says comes from the daemon in place of the kernel.
func (n *Node) runInspector(p *process) error {
	publisher, err := publish.New(n.connect(p).config(), n.Name, publish.DefaultPace, slog.New(slog.DiscardHandler))
	if err != nil {
		return fmt.Errorf("create the inspector of %s: %w", n.Name, err)
	}
	var inspecting sync.WaitGroup
	inspecting.Go(func() {
		for {
			next := n.programs.next()
			publisher.Publish(n.inspected())
			select {
			case <-next:
			case <-p.ctx.Done():
				return
			}
		}
	})
	err = publisher.Run(p.ctx)
	inspecting.Wait()
	return err
}

// inspected returns what an inspector finds on the node.
func (n *Node) inspected() *v1alpha1.BpfNodeStatus {
	status := &v1alpha1.BpfNodeStatus{KernelVersion: kernel}
	for _, p := range n.Daemon.Programs() {
		found := v1alpha1.BpfNodeProgram{ID: p.ID, Name: p.Function, Type: "tracing"}
		if at, err := time.Parse(loadTime, p.LoadedAt); err == nil {
			found.LoadedAt = new(metav1.NewTime(at))
		}
		found.Owner = &v1alpha1.BpfNodeOwner{
			Kind: p.Metadata[v1alpha1.MetadataKind], Namespace: p.Metadata[v1alpha1.MetadataNamespace], Name: p.Metadata[v1alpha1.MetadataProgramName],
		}
		status.Programs = append(status.Programs, found)
		status.LinkCount += int32(len(p.Links)) //nolint:gosec // there are few
	}
	status.ProgramCount, status.BpfmanCount = int32(len(status.Programs)), int32(len(status.Programs)) //nolint:gosec // the same
	n.mu.Lock()
	defer n.mu.Unlock()
	status.BootID = n.bootID()
	status.Conflicts, status.ConflictCount = slices.Clone(n.conflicts), int32(len(n.conflicts)) //nolint:gosec // the same
	return status
}
