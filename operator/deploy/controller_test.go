// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package deploy

import (
	"strings"
	"testing"
	"text/template"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
			r := &Reconciler{Client: fake.NewClientBuilder().Build(), Recorder: recorder, Namespace: "bpfman"}
			if err := r.deploy(t.Context(), &corev1.ConfigMap{Data: minimal(c.data)}); (err != nil) != c.retries {
				t.Errorf("error: %v", err)
			}
			if got := <-recorder.Events; !strings.HasPrefix(got, c.event) {
				t.Errorf("Event %q", got)
			}
		})
	}
}

// An Event warns of nodes that aren't selected anymore.
func TestNodesThatLeave(t *testing.T) {
	for name, c := range map[string]struct {
		deployed, selector map[string]string
		leave              bool
	}{
		"unchanged":     {map[string]string{"kubernetes.io/os": "linux", "ebpf": "true"}, map[string]string{"ebpf": "true"}, false},
		"fewer labels":  {map[string]string{"kubernetes.io/os": "linux", "ebpf": "true"}, nil, false},
		"the system":    {nil, map[string]string{"kubernetes.io/os": "linux"}, false},
		"more labels":   {map[string]string{"kubernetes.io/os": "linux"}, map[string]string{"ebpf": "true"}, true},
		"another value": {map[string]string{"ebpf": "true"}, map[string]string{"ebpf": "yes"}, true},
		"not deployed":  {nil, map[string]string{"ebpf": "true"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			builder := fake.NewClientBuilder()
			if name != "not deployed" {
				deployed := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "bpfman", Name: DaemonSetName}}
				deployed.Spec.Template.Spec.NodeSelector = c.deployed
				builder = builder.WithObjects(deployed)
			}
			recorder := events.NewFakeRecorder(1)
			r := &Reconciler{Client: builder.Build(), Recorder: recorder, Namespace: "bpfman"}
			if err := r.warnOfNodesThatLeave(t.Context(), &corev1.ConfigMap{}, Config{NodeSelector: c.selector}); err != nil {
				t.Fatal(err)
			}
			if got := len(recorder.Events) == 1; got != c.leave {
				t.Errorf("warned: %v", got)
			}
		})
	}
}
