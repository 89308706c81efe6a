// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package deploy installs and maintains the node components as the ConfigMap specifies: a DaemonSet with the
// daemon, the agent, the CSI plugin, and the inspector, the CSIDriver object, and on OpenShift,
// SecurityContextConstraints for users' pods. The templates are daemonset.yaml, csidriver.yaml, and scc.yaml.
package deploy

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"path"
	"strings"
	"text/template"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// The names of the deployed objects.
const (
	// ConfigMapName is the name of the ConfigMap with the whole configuration.
	ConfigMapName = "bpfman-config"
	// DaemonSetName is the name of the DaemonSet. Its pods have it as the value of their label "name".
	DaemonSetName = "bpfman-daemon"
	// AgentContainer, DaemonContainer, CSIContainer, and InspectorContainer are the names of containers of these pods.
	AgentContainer     = "bpfman-agent"
	DaemonContainer    = "bpfman"
	CSIContainer       = "bpfman-csi"
	InspectorContainer = "bpfman-inspector"
	// CSIDriverName is the value of csi.driver in pods' volumes.
	CSIDriverName = "csi.bpfman.io"
	// ConstraintsName is the name of the SecurityContextConstraints that allow pods on OpenShift to mount maps.
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

	functions         = template.FuncMap{"q": quote, "inline": inline, "hostOf": hostOf, "portOf": portOf}
	daemonSetTemplate = template.Must(template.New("daemonset.yaml").Funcs(functions).Parse(daemonSetYAML))
)

// quote formats v as a string in YAML.
func quote(v any) (string, error) { return inline(fmt.Sprint(v)) }

// inline formats v as JSON in which all characters are escaped that YAML doesn't admit, so it is YAML on one line.
func inline(v any) (string, error) {
	out, err := json.Marshal(v)
	var text strings.Builder
	for _, r := range string(out) {
		switch {
		case unicode.IsPrint(r):
			text.WriteRune(r)
		case r <= 0xffff:
			fmt.Fprintf(&text, `\u%04x`, r)
		default:
			fmt.Fprintf(&text, `\U%08x`, r)
		}
	}
	return text.String(), err
}

// values are the values for the template daemonset.yaml.
type values struct {
	Config
	Namespace string
}

// PluginDir is the directory where the kubelet looks for the plugin's socket.
func (v values) PluginDir() string { return path.Join(v.KubeletRoot, "plugins", "csi-bpfman") }

// Selector returns the labels of the nodes that run the pods.
func (v values) Selector() map[string]string {
	selector := map[string]string{corev1.LabelOSStable: "linux"}
	maps.Copy(selector, v.NodeSelector)
	return selector
}

// Requirements returns the configured resources of a container. By default, these are only the given requests.
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

// RequirePolicy reports whether the agent refuses images for which no policy requires a signature.
func (v values) RequirePolicy() bool { return v.Daemon.Signatures == SignaturesRequired }

// StoreDir is the path of the bytecode store, on the node and in the containers. The paths that the agent gives the
// daemon contain it.
func (v values) StoreDir() string { return "/var/lib/bpfman/bytecode" }

// Proxies returns the variables of the agent, which reads bytecode from registries. The agent doesn't use the proxy
// for the API server, whose address the kubelet inserts.
func (v values) Proxies() []corev1.EnvVar {
	if v.Proxy.HTTPProxy == "" && v.Proxy.HTTPSProxy == "" {
		return nil
	}
	const apiServer = "$(KUBERNETES_SERVICE_HOST)"
	exceptions := apiServer
	if v.Proxy.NoProxy != "" {
		exceptions = literal(v.Proxy.NoProxy) + "," + apiServer
	}
	variables := []corev1.EnvVar{{Name: "NO_PROXY", Value: exceptions}}
	for _, proxy := range []corev1.EnvVar{{Name: "HTTP_PROXY", Value: v.Proxy.HTTPProxy}, {Name: "HTTPS_PROXY", Value: v.Proxy.HTTPSProxy}} {
		if proxy.Value != "" {
			variables = append(variables, corev1.EnvVar{Name: proxy.Name, Value: literal(proxy.Value)})
		}
	}
	return variables
}

// literal returns the value of a variable in which the kubelet replaces nothing.
func literal(value string) string { return strings.ReplaceAll(value, "$", "$$") }

// hostOf returns the host at which the kubelet reaches a server in the pod. It is empty, which stands for the
// pod's address, if the server listens on all addresses of the node.
func hostOf(addr string) string {
	host, _, _ := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		return ""
	}
	return host
}

// portOf returns the port of a server's address.
func portOf(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}

// DaemonSet returns the DaemonSet of the node components, with only the fields that the operator manages.
func DaemonSet(config Config, namespace string) (*unstructured.Unstructured, error) {
	var text bytes.Buffer
	if err := daemonSetTemplate.Execute(&text, values{config, namespace}); err != nil {
		return nil, fmt.Errorf("render daemonset.yaml: %w", err)
	}
	return parse(text.Bytes())
}

// CSIDriver returns the cluster's CSIDriver object.
func CSIDriver() (*unstructured.Unstructured, error) {
	return parse([]byte(csiDriverYAML))
}

// Constraints returns OpenShift's SecurityContextConstraints for pods that mount maps.
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

// PodLabels returns the labels that select the pods of the DaemonSet.
func PodLabels() map[string]string { return map[string]string{"name": DaemonSetName} }
