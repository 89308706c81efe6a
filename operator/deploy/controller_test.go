// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package deploy

import (
	"strings"
	"testing"
	"text/template"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
)

// A configuration that can't be deployed gets an Event, and nothing is written: the reconciler has no client here.
func TestConfigurationThatCannotBeDeployed(t *testing.T) {
	rendered := daemonSetTemplate
	t.Cleanup(func() { daemonSetTemplate = rendered })
	for name, c := range map[string]struct {
		data     map[string]string
		template string
		event    string
		retries  bool
	}{
		"invalid":              {map[string]string{KeyCSIEnabled: "no"}, daemonSetYAML, `Warning InvalidConfig Invalid configuration, the node components are unchanged: bpfman.csi.enabled: "no" is not one of`, false},
		"renders to no object": {nil, "a: 1\na: 2\n", "Warning ApplyFailed Failed to apply DaemonSet bpfman-daemon: parse rendered manifest: ", true},
	} {
		t.Run(name, func(t *testing.T) {
			daemonSetTemplate = template.Must(template.New("daemonset.yaml").Funcs(functions).Parse(c.template))
			recorder := events.NewFakeRecorder(1)
			r := &Reconciler{Recorder: recorder, Namespace: "bpfman"}
			if err := r.deploy(t.Context(), &corev1.ConfigMap{Data: minimal(c.data)}); (err != nil) != c.retries {
				t.Errorf("error: %v", err)
			}
			if got := <-recorder.Events; !strings.HasPrefix(got, c.event) {
				t.Errorf("Event %q", got)
			}
		})
	}
}
