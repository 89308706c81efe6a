// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package deploy installs and maintains the node components as the ConfigMap says: a DaemonSet with the daemon, the
// agent, the CSI plugin and the inspector, the CSIDriver object, and on OpenShift SecurityContextConstraints for the pods
// of users. What they look like is in daemonset.yaml, csidriver.yaml and scc.yaml.
package deploy

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"net"
	"path"
	"text/template"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// Names of what is deployed.
const (
	// ConfigMapName is the one place of configuration.
	ConfigMapName = "bpfman-config"
	// DaemonSetName is also the value of the label "name" of its pods.
	DaemonSetName = "bpfman-daemon"
	// InspectorContainer is the container of its pods that the inspector is.
	InspectorContainer = "bpfman-inspector"
	// CSIDriverName is what pods put in a volume's csi.driver.
	CSIDriverName = "csi.bpfman.io"
	// ConstraintsName is of the SecurityContextConstraints that let pods of OpenShift mount maps.
	ConstraintsName = "bpfman-restricted"
)

// ConstraintsKind is OpenShift's SecurityContextConstraints.
var ConstraintsKind = schema.GroupVersionKind{Group: "security.openshift.io", Version: "v1", Kind: "SecurityContextConstraints"}

var (
	//go:embed daemonset.yaml
	daemonSetYAML string
	//go:embed csidriver.yaml
	csiDriverYAML string
	//go:embed scc.yaml
	constraintsYAML string

	daemonSetTemplate = template.Must(template.New("daemonset.yaml").Funcs(template.FuncMap{"q": quote, "inline": inline}).Parse(daemonSetYAML))
)

// quote writes v as a JSON string, which is a YAML string whatever v holds.
func quote(v any) (string, error) {
	out, err := json.Marshal(fmt.Sprint(v))
	return string(out), err
}

// inline writes v as JSON, which is YAML in one line.
func inline(v any) (string, error) {
	out, err := json.Marshal(v)
	return string(out), err
}

// values is what daemonset.yaml can name.
type values struct {
	Config
	Namespace string
}

func (v values) SelfRegistration() bool { return v.CSI.Registration == RegistrationSelf }

// PluginDir is where the kubelet looks for the plugin's socket.
func (v values) PluginDir() string { return path.Join(v.KubeletRoot, "plugins", "csi-bpfman") }

func (v values) PodsDir() string { return path.Join(v.KubeletRoot, "pods") }

func (v values) HealthHost() string { return hostOf(v.Agent.HealthAddr) }

func (v values) HealthPort() string { return portOf(v.Agent.HealthAddr) }

// MetricsPort is where Prometheus finds the agent's metrics.
func (v values) MetricsPort() string { return portOf(v.Agent.MetricsAddr) }

// Pods mount maps through the plugin alone.
func (v values) CSIEnabled() bool { return !v.CSI.Disabled }

// Requirements are a container's, as configured, or requests alone.
func (v values) Requirements(container, cpu, memory string) (string, error) {
	resources, ok := v.Resources[container]
	if !ok {
		resources.Requests = corev1.ResourceList{}
		for name, text := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
			quantity, err := resource.ParseQuantity(text)
			if err != nil {
				return "", fmt.Errorf("%s of %s: %w", name, container, err)
			}
			resources.Requests[name] = quantity
		}
	}
	return inline(resources)
}

// CSIMetricsPort is where it finds the CSI plugin's.
func (v values) CSIMetricsPort() string { return portOf(v.CSI.MetricsAddr) }

func (v values) InspectorEnabled() bool { return !v.Inspector.Disabled }

// InspectorHost is where the inspector serves its probes.
func (v values) InspectorHost() string { return hostOf(v.Inspector.MetricsAddr) }

func (v values) InspectorPort() string { return portOf(v.Inspector.MetricsAddr) }

// hostOf is the host that the kubelet finds a server of the pod at: empty, which is the pod's address, for one that
// listens on every address of the node.
func hostOf(addr string) string {
	host, _, _ := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		return ""
	}
	return host
}

func portOf(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}

// DaemonSet is the node components' DaemonSet, with the fields that the operator decides and no others.
func DaemonSet(config Config, namespace string) (*unstructured.Unstructured, error) {
	var text bytes.Buffer
	if err := daemonSetTemplate.Execute(&text, values{config, namespace}); err != nil {
		return nil, fmt.Errorf("render daemonset.yaml: %w", err)
	}
	return parse(text.Bytes())
}

// CSIDriver is the cluster's object for the CSI plugin.
func CSIDriver() (*unstructured.Unstructured, error) {
	return parse([]byte(csiDriverYAML))
}

// Constraints are OpenShift's for the pods that mount maps.
func Constraints() (*unstructured.Unstructured, error) {
	return parse([]byte(constraintsYAML))
}

func parse(text []byte) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict(text, &object.Object); err != nil {
		return nil, fmt.Errorf("parse rendered manifest: %w", err)
	}
	return object, nil
}

// PodLabels select the pods of the DaemonSet.
func PodLabels() map[string]string { return map[string]string{"name": DaemonSetName} }
