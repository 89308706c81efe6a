// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
)

// The variable parts of kubectl's output.
var (
	timestamps = regexp.MustCompile(`\d{4}-\d\d-\d\dT\S+`)
	ages       = regexp.MustCompile(`  \d+[smh]\S* `)
	hashes     = regexp.MustCompile(`Hash: +[0-9a-f]{20}\n`)
	eventRule  = regexp.MustCompile(`-{2,}`)
	spaces     = regexp.MustCompile(` +`)
)

const described = `Status:
 Conditions:
 Last Transition Time: TIME
 Message: Attached on 1 of 1 selected node
 Observed Generation: 1
 Reason: ReconcileSuccess
 Status: True
 Type: ReconcileSuccess
 Last Transition Time: TIME
 Message: Attached on 1 of 1 selected node
 Observed Generation: 1
 Reason: ReconcileSuccess
 Status: True
 Type: Ready
 Nodes:
 Attached: 1
 Failed: 0
 Idle: 0
 Selected: 1
 Observed Generation: 1
 Revision:
 Hash: HASH
 Number: 1
Events:
 Type Reason Age From Message
 - - - - -
 Normal ReconcileSuccess AGE bpfman-operator Attached on 1 of 1 selected node
`

// TestDescribe describes the first sample, like a user.
func TestDescribe(t *testing.T) {
	requireType(t, "TCX")
	if len(under.nodes()) != 1 {
		t.Skip("the text is that of a cluster of one node")
	}
	kubectl, err := exec.LookPath(cmp.Or(os.Getenv("KUBECTL"), "kubectl"))
	if err != nil {
		prerequisite.Missing(t, "KUBECTL doesn't say where it is", prerequisite.Kubectl)
	}
	var objects []client.Object
	feature(t, step{"a newcomer understands it", func(ctx context.Context, s *testing.T) {
		objects = objectsIn(ctx, s, filepath.Join(samplesDir, "bpfman.io_v1alpha1_tcx_pass_tcxprogram.yaml"))
		o := objects[0].(*v1alpha1.TcxProgram) //nolint:errcheck // the file contains this kind
		create(ctx, t, o)
		awaitSuccess(ctx, s, o)
		awaitEvent(ctx, s, o, "Normal", "ReconcileSuccess")
		out, err := exec.CommandContext(ctx, kubectl, "--kubeconfig", settings.kubeconfig, "describe", "tcxprogram", o.Name).CombinedOutput()
		if err != nil {
			s.Fatalf("kubectl describe: %v: %s", err, out)
		}
		_, text, _ := strings.Cut(string(out), "\nStatus:\n")
		text = "Status:\n" + text
		text = timestamps.ReplaceAllString(text, "TIME")
		text = ages.ReplaceAllString(text, "  AGE ")
		text = hashes.ReplaceAllString(text, "Hash: HASH\n")
		text = eventRule.ReplaceAllString(text, "-")
		text = spaces.ReplaceAllString(text, " ")
		if text != described {
			s.Errorf("kubectl describe says\n%s\nwant\n%s", text, described)
		}
	}})
}
