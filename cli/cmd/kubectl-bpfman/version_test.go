// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/cluster"
)

// The daemons of the nodes are counted. Without a cluster, the version of the plugin is still printed, with a warning.
func TestVersion(t *testing.T) {
	daemon := func(node, name string) *v1alpha1.BpfNode {
		return &v1alpha1.BpfNode{ObjectMeta: named("", node), Status: v1alpha1.BpfNodeStatus{Daemon: name}}
	}
	nodes := clusterOf(daemon("a", "second"), daemon("b", "first"), daemon("c", "second"), daemon("d", ""))
	unreachable := func() (*cluster.Cluster, error) { return nil, errors.New("connection refused") }
	for name, c := range map[string]struct {
		connect          cluster.Connect
		args             []string
		daemons, warning string
	}{
		"in a cluster":      {nodes, nil, "daemon first on 1 node\ndaemon second on 2 nodes\n", ""},
		"only the plugin":   {nodes, []string{"--client"}, "", ""},
		"without a cluster": {unreachable, nil, "", "Warning: failed to read which daemons the nodes run: connection refused\n"},
	} {
		t.Run(name, func(t *testing.T) {
			out, messages, err := execute(t, c.connect, append([]string{"version"}, c.args...)...)
			line, daemons, _ := strings.Cut(out, "\n")
			if err != nil || !strings.HasPrefix(line, "kubectl-bpfman ") || daemons != c.daemons || messages != c.warning {
				t.Errorf("%q, %q, %v", out, messages, err)
			}
		})
	}
}
