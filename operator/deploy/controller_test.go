// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package deploy

import (
	"strings"
	"testing"
	"text/template"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// A configuration that can't be deployed gets an Event, and nothing is written.
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
			r := &Reconciler{Live: fake.NewClientBuilder().Build(), Recorder: recorder, Namespace: "bpfman"}
			if err := r.deploy(t.Context(), &corev1.ConfigMap{Data: minimal(c.data)}); (err != nil) != c.retries {
				t.Errorf("error: %v", err)
			}
			if got := <-recorder.Events; !strings.HasPrefix(got, c.event) {
				t.Errorf("Event %q", got)
			}
		})
	}
}

// An Event warns of nodes that aren't selected anymore, and of volumes without the plugin.
func TestNodesThatLeave(t *testing.T) {
	gpu := corev1.Toleration{Key: "gpu", Operator: corev1.TolerationOpExists}
	drained := corev1.Toleration{Key: "gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	for name, c := range map[string]struct {
		deployed, config Config
		event            string
	}{
		"unchanged":          {Config{NodeSelector: map[string]string{"ebpf": "true"}}, Config{NodeSelector: map[string]string{"ebpf": "true"}}, ""},
		"fewer labels":       {Config{NodeSelector: map[string]string{"ebpf": "true"}}, Config{}, ""},
		"the system":         {Config{}, Config{NodeSelector: map[string]string{"kubernetes.io/os": "linux"}}, ""},
		"more labels":        {Config{}, Config{NodeSelector: map[string]string{"ebpf": "true"}}, "NodesLeave bpfman.node.selector selects other nodes"},
		"another value":      {Config{NodeSelector: map[string]string{"ebpf": "true"}}, Config{NodeSelector: map[string]string{"ebpf": "yes"}}, "NodesLeave bpfman.node.selector"},
		"the same taints":    {Config{Tolerations: []corev1.Toleration{gpu, drained}}, Config{Tolerations: []corev1.Toleration{drained, gpu}}, ""},
		"more taints":        {Config{}, Config{Tolerations: []corev1.Toleration{gpu}}, ""},
		"fewer taints":       {Config{Tolerations: []corev1.Toleration{gpu, drained}}, Config{Tolerations: []corev1.Toleration{drained}}, "NodesLeave bpfman.tolerations tolerates fewer taints"},
		"without volumes":    {Config{}, Config{CSI: CSIConfig{Disabled: true}}, "VolumesStay bpfman.csi.enabled is false: pods that have volumes of maps can't terminate"},
		"still without them": {Config{CSI: CSIConfig{Disabled: true}}, Config{CSI: CSIConfig{Disabled: true}}, ""},
		"volumes again":      {Config{CSI: CSIConfig{Disabled: true}}, Config{}, ""},
		"not deployed":       {Config{}, Config{NodeSelector: map[string]string{"ebpf": "true"}, CSI: CSIConfig{Disabled: true}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			builder := fake.NewClientBuilder()
			if name != "not deployed" {
				rendered, err := DaemonSet(c.deployed, "bpfman")
				if err != nil {
					t.Fatal(err)
				}
				builder = builder.WithObjects(rendered)
			}
			recorder := events.NewFakeRecorder(2)
			r := &Reconciler{Live: builder.Build(), Recorder: recorder, Namespace: "bpfman"}
			wanted, err := DaemonSet(c.config, "bpfman")
			if err == nil {
				err = r.warnOfVolumes(t.Context(), &corev1.ConfigMap{}, wanted)
			}
			if err != nil {
				t.Fatal(err)
			}
			said := ""
			if len(recorder.Events) > 0 {
				said = <-recorder.Events
			}
			if len(recorder.Events) > 0 || (said == "") != (c.event == "") || !strings.HasPrefix(said, strings.TrimSpace("Warning "+c.event)) && said != "" {
				t.Errorf("Event %q", said)
			}
		})
	}
}
