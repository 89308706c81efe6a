// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package monitoring tests config/prometheus without a Prometheus: monitors, rules, and the dashboard are valid,
// what they name exists, and promtool says when alerts fire.
package monitoring

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/grpc"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/bpfman/bpfman-operator/agent/metrics"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/csi/driver"
	csimetrics "github.com/bpfman/bpfman-operator/csi/metrics"
	inspectormetrics "github.com/bpfman/bpfman-operator/inspector/metrics"
	"github.com/bpfman/bpfman-operator/operator/deploy"
	"github.com/bpfman/bpfman-operator/tests/must"
)

const config = "../../config"

// read builds config/monitoring, and decodes an object of it, refusing unknown fields.
func read(t *testing.T, kind, name string, into any) {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(config, "monitoring"))
	if err != nil {
		t.Fatal(err)
	}
	for _, resource := range resources.Resources() {
		if resource.GetKind() == kind && resource.GetName() == name {
			if err := yaml.UnmarshalStrict([]byte(resource.MustYaml()), into); err != nil {
				t.Fatalf("%s %s: %v", kind, name, err)
			}
			return
		}
	}
	t.Fatalf("no %s %s", kind, name)
}

func TestServiceMonitor(t *testing.T) {
	var monitor monitoringv1.ServiceMonitor
	read(t, "ServiceMonitor", "bpfman-operator", &monitor)
	var service corev1.Service
	read(t, "Service", "bpfman-controller-manager-metrics-service", &service)
	if !labels.SelectorFromSet(monitor.Spec.Selector.MatchLabels).Matches(labels.Set(service.Labels)) {
		t.Errorf("selects %v, the Service has %v", monitor.Spec.Selector.MatchLabels, service.Labels)
	}
	if len(monitor.Spec.Endpoints) != 1 {
		t.Fatalf("%d endpoints", len(monitor.Spec.Endpoints))
	}
	endpoint := monitor.Spec.Endpoints[0]
	if !slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == endpoint.Port }) {
		t.Errorf("the Service has no port %s", endpoint.Port)
	}
	checkCredentials(t, endpoint.Authorization)
}

// nodeComponents returns the DaemonSet of config/monitoring, and the configuration that it is made of.
func nodeComponents(t *testing.T) (deploy.Config, appsv1.DaemonSet) {
	t.Helper()
	var configMap corev1.ConfigMap
	read(t, "ConfigMap", deploy.ConfigMapName, &configMap)
	parsed, _, err := deploy.ParseConfig(configMap.Data)
	if err != nil {
		t.Fatal(err)
	}
	object, err := deploy.DaemonSet(parsed, "bpfman")
	if err != nil {
		t.Fatal(err)
	}
	var daemonSet appsv1.DaemonSet
	must.Succeed(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &daemonSet))
	return parsed, daemonSet
}

func TestPodMonitor(t *testing.T) {
	var monitor monitoringv1.PodMonitor
	read(t, "PodMonitor", "bpfman-nodes", &monitor)
	parsed, daemonSet := nodeComponents(t)
	if !labels.SelectorFromSet(monitor.Spec.Selector.MatchLabels).Matches(labels.Set(daemonSet.Spec.Template.Labels)) {
		t.Errorf("selects %v, the pods have %v", monitor.Spec.Selector.MatchLabels, daemonSet.Spec.Template.Labels)
	}
	served := map[string]string{"bpfman-agent": parsed.Agent.MetricsAddr, "bpfman-csi": parsed.CSI.MetricsAddr, "bpfman-inspector": parsed.Inspector.MetricsAddr}
	for _, endpoint := range monitor.Spec.PodMetricsEndpoints {
		if endpoint.Port == nil {
			t.Fatal("an endpoint without a port")
		}
		checkCredentials(t, endpoint.Authorization)
		for _, container := range daemonSet.Spec.Template.Spec.Containers {
			for _, port := range container.Ports {
				// Without an IP address, because Prometheus runs on another node.
				if port.Name == *endpoint.Port && served[container.Name] == fmt.Sprintf(":%d", port.ContainerPort) {
					delete(served, container.Name)
				}
			}
		}
	}
	if len(served) > 0 {
		t.Errorf("no endpoint reaches the metrics of %v", served)
	}
}

// job is a job of a Prometheus' configuration.
type job struct {
	Name     string    `json:"job_name"`
	Relabels []relabel `json:"relabel_configs"`
}

type relabel struct {
	Sources []string `json:"source_labels"`
	Regex   string   `json:"regex"`
	Action  string   `json:"action"`
	Target  string   `json:"target_label"`
}

// keeps reports whether the job scrapes a port of a pod with these labels.
func (j job) keeps(t *testing.T, pod map[string]string, port string) bool {
	t.Helper()
	discovered := map[string]string{"__meta_kubernetes_pod_container_port_name": port}
	for name, value := range pod {
		discovered["__meta_kubernetes_pod_label_"+regexp.MustCompile(`\W`).ReplaceAllString(name, "_")] = value
	}
	for _, r := range j.Relabels {
		if r.Action != "keep" {
			continue
		}
		var values []string
		for _, source := range r.Sources {
			values = append(values, discovered[source])
		}
		if !regexp.MustCompile("^(?:" + r.Regex + ")$").MatchString(strings.Join(values, ";")) {
			return false
		}
	}
	return true
}

// TestScrapeConfiguration checks that the configuration on the page, for a Prometheus without the Prometheus
// operator, scrapes the ports that the monitors select, and no others.
func TestScrapeConfiguration(t *testing.T) {
	page := must.Read(t, "../../docs/monitoring.md")
	block := regexp.MustCompile("(?s)```yaml\n(rule_files.*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatal("the page has no configuration")
	}
	var configuration struct {
		Jobs []job `json:"scrape_configs"`
	}
	must.Succeed(t, yaml.Unmarshal(block[1], &configuration))

	_, daemonSet := nodeComponents(t)
	var operator appsv1.Deployment
	read(t, "Deployment", "bpfman-operator", &operator)
	scraped := map[string][]string{}
	for _, j := range configuration.Jobs {
		for _, template := range []corev1.PodTemplateSpec{daemonSet.Spec.Template, operator.Spec.Template} {
			for _, container := range template.Spec.Containers {
				for _, port := range container.Ports {
					if j.keeps(t, template.Labels, port.Name) {
						scraped[j.Name] = append(scraped[j.Name], port.Name)
					}
				}
			}
		}
	}

	var nodes monitoringv1.PodMonitor
	read(t, "PodMonitor", "bpfman-nodes", &nodes)
	var one monitoringv1.ServiceMonitor
	read(t, "ServiceMonitor", "bpfman-operator", &one)
	// These are the names that the monitors' jobs end with.
	const ofNodes, ofOperator = "bpfman-nodes", "bpfman-controller-manager-metrics-service"
	want := map[string][]string{}
	for _, endpoint := range nodes.Spec.PodMetricsEndpoints {
		want[ofNodes] = append(want[ofNodes], *endpoint.Port)
	}
	for _, endpoint := range one.Spec.Endpoints {
		want[ofOperator] = append(want[ofOperator], endpoint.Port)
	}
	if !reflect.DeepEqual(scraped, want) {
		t.Errorf("scrapes %v, and the monitors select %v", scraped, want)
	}
	for _, j := range configuration.Jobs {
		if j.Name == ofNodes && !slices.ContainsFunc(j.Relabels, func(r relabel) bool { return r.Target == "node" }) {
			t.Errorf("the job %s has no label node, which alerts and the dashboard need", j.Name)
		}
	}
}

// checkCredentials checks that the token that a monitor names exists.
func checkCredentials(t *testing.T, authorization *monitoringv1.SafeAuthorization) {
	t.Helper()
	if authorization == nil || authorization.Credentials == nil {
		t.Fatal("no credentials: metrics are for whom RBAC allows")
	}
	var secret corev1.Secret
	read(t, "Secret", authorization.Credentials.Name, &secret)
	if secret.Type != corev1.SecretTypeServiceAccountToken || authorization.Credentials.Key != corev1.ServiceAccountTokenKey {
		t.Errorf("%s of a Secret of type %s is no token", authorization.Credentials.Key, secret.Type)
	}
	read(t, "ServiceAccount", secret.Annotations[corev1.ServiceAccountNameKey], &corev1.ServiceAccount{})
}

// report is a report of the agent that all metrics count.
var report = &v1alpha1.BpfProgram{Status: v1alpha1.BpfProgramStatus{
	Links:    []v1alpha1.BpfProgramLink{{State: v1alpha1.LinkAttached}},
	Bytecode: &v1alpha1.BpfProgramBytecode{Policies: []v1alpha1.BpfProgramPolicy{{Name: "p", Verdict: v1alpha1.VerdictDenied}}},
}}

// registeredByCSI returns the metrics of the CSI plugin.
func registeredByCSI(t *testing.T) []*dto.MetricFamily {
	t.Helper()
	m := csimetrics.New()
	m.Volumes(func() (driver.Counts, error) { return driver.Counts{}, nil }, slog.New(slog.DiscardHandler))
	m.Registered(func() bool { return true })
	if _, err := m.Calls(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: csi.Node_NodePublishVolume_FullMethodName},
		func(context.Context, any) (any, error) { return &csi.NodePublishVolumeResponse{}, nil }); err != nil {
		t.Fatal(err)
	}
	response := httptest.NewRecorder()
	m.Handler().ServeHTTP(response, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Collect(maps.Values(families))
}

// registeredByInspector returns the inspector's metrics of a node with one program that has run.
func registeredByInspector(t *testing.T) []*dto.MetricFamily {
	t.Helper()
	collector := inspectormetrics.New(inspectormetrics.Kernel{
		Runs:      func(uint32) (uint64, time.Duration, error) { return 1, 1, nil },
		MapMemory: func(uint32) (uint64, error) { return 1, nil },
	})
	collector.Update(&v1alpha1.BpfNodeStatus{Programs: []v1alpha1.BpfNodeProgram{{ID: 1, Type: "xdp"}}, Maps: []v1alpha1.BpfNodeMap{{ID: 1}}})
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// nodePods is the operator's collector, with a DaemonSet to count.
func nodePods() prometheus.Collector {
	daemonSet := &appsv1.DaemonSet{}
	daemonSet.Namespace, daemonSet.Name = "bpfman", deploy.DaemonSetName
	leads := make(chan struct{})
	close(leads)
	return &deploy.NodePods{Client: fake.NewClientBuilder().WithObjects(daemonSet).Build(), Namespace: daemonSet.Namespace, Leads: leads}
}

// registered returns the names of the series of the operator, agent, CSI plugin, and inspector, with their labels.
func registered(t *testing.T) map[string][]string {
	t.Helper()
	m := metrics.New(ctrlmetrics.Registry)
	ctrlmetrics.Registry.MustRegister(&metrics.Reports{List: func() []v1alpha1.ProgramObject { return []v1alpha1.ProgramObject{report} }})
	metrics.Disk(ctrlmetrics.Registry, func() int64 { return 1 }, func() int64 { return 1 })
	metrics.Waiting(ctrlmetrics.Registry, func() int { return 1 }, func() int { return 1 })
	ctrlmetrics.Registry.MustRegister(nodePods())
	invoke := func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return nil }
	must.Succeed(t, m.Call(t.Context(), "/bpfman.v1.Bpfman/Load", nil, nil, nil, invoke))
	// A controller's queue registers the metrics of queues.
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[string](),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "programs"})
	queue.AddRateLimited("x")
	queue.Add("y")
	_, _ = queue.Get()
	queue.Done("y")
	queue.ShutDown()

	families, err := prometheus.Gatherer(ctrlmetrics.Registry).Gather()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string][]string{}
	for _, family := range slices.Concat(families, registeredByCSI(t), registeredByInspector(t)) {
		var of []string
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				of = append(of, label.GetName())
			}
			if metric.GetHistogram() != nil {
				names[family.GetName()+"_bucket"] = append(of, "le")
				names[family.GetName()+"_count"] = of
				names[family.GetName()+"_sum"] = of
			} else {
				names[family.GetName()] = of
			}
		}
	}
	return names
}

var (
	inQuotes   = regexp.MustCompile(`"[^"]*"`)
	selector   = regexp.MustCompile(`([a-zA-Z_:][a-zA-Z0-9_:]*)\{([^}]*)\}`)
	matcher    = regexp.MustCompile(`([a-zA-Z_]\w*) *(?:=~|!~|!=|=)`)
	grouping   = regexp.MustCompile(`\b(?:by|without|on|ignoring) *\([^)]*\)`)
	identifier = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*`)
	duration   = regexp.MustCompile(`\[[^\]]*\]`)
)

// Words of PromQL in the expressions.
var words = []string{"sum", "max", "rate", "increase", "histogram_quantile", "vector", "or", "and", "topk", "count", "max_over_time", "end", "label_replace", "label_join", "absent", "unless", "changes"}

// Labels of the target, not of the series.
var ofTarget = []string{"node", "job", "pod", "container", "namespace", "instance"}

// check checks that each series and label in an expression is registered.
func check(t *testing.T, where, expression string, series map[string][]string) {
	t.Helper()
	plain := duration.ReplaceAllString(inQuotes.ReplaceAllString(expression, `""`), "")
	for _, s := range selector.FindAllStringSubmatch(plain, -1) {
		for _, m := range matcher.FindAllStringSubmatch(s[2], -1) {
			if !slices.Contains(ofTarget, m[1]) && !slices.Contains(series[s[1]], m[1]) {
				t.Errorf("%s: %s has no label %s", where, s[1], m[1])
			}
		}
	}
	plain = grouping.ReplaceAllString(selector.ReplaceAllString(plain, "$1"), "")
	found := 0
	for _, name := range identifier.FindAllString(plain, -1) {
		if slices.Contains(words, name) {
			continue
		}
		found++
		if _, ok := series[name]; !ok && name != "up" {
			t.Errorf("%s: nothing registers %s", where, name)
		}
	}
	if found == 0 {
		t.Errorf("%s names no series: %s", where, expression)
	}
}

// panel is a panel of the dashboard, or the title of a row of panels.
type panel struct {
	Title, Type string
	GridPos     place
	FieldConfig struct {
		Defaults struct {
			Unit              string
			Color, Thresholds any
		}
	}
	Targets []struct{ Expr string }
}

// place is a rectangle in the dashboard's grid, which has 24 columns.
type place struct{ X, Y, W, H int }

func (p place) overlaps(o place) bool {
	return p.X < o.X+o.W && o.X < p.X+p.W && p.Y < o.Y+o.H && o.Y < p.Y+p.H
}

// check checks what a panel needs to be shown.
func (p panel) check(t *testing.T) {
	t.Helper()
	if p.GridPos.W == 0 || p.GridPos.H == 0 || p.GridPos.X+p.GridPos.W > 24 {
		t.Errorf("panel %q leaves the grid", p.Title)
	}
	if p.Type == "row" {
		return
	}
	if len(p.Targets) == 0 || p.FieldConfig.Defaults.Unit == "" {
		t.Errorf("panel %q shows nothing, or has no unit", p.Title)
	}
	if p.Type == "stat" && p.FieldConfig.Defaults.Color == nil && p.FieldConfig.Defaults.Thresholds == nil {
		t.Errorf("panel %q is green below 80 and red from there on, which is Grafana's default", p.Title)
	}
}

func TestNamedMetricsAreRegistered(t *testing.T) {
	series := registered(t)

	var rule monitoringv1.PrometheusRule
	read(t, "PrometheusRule", "bpfman", &rule)
	alerts := 0
	for _, group := range rule.Spec.Groups {
		for _, r := range group.Rules {
			alerts++
			check(t, "alert "+r.Alert, r.Expr.String(), series)
			if r.Annotations["summary"] == "" || r.Annotations["description"] == "" || r.Labels["severity"] == "" {
				t.Errorf("alert %s doesn't say what is wrong, what to do, or how bad it is", r.Alert)
			}
		}
	}

	content := must.Read(t, filepath.Join(config, "prometheus", "objects", "bpfman.json"))
	var dashboard struct{ Panels []panel }
	must.Succeed(t, json.Unmarshal(content, &dashboard))
	for i, panel := range dashboard.Panels {
		panel.check(t)
		for _, other := range dashboard.Panels[:i] {
			if panel.GridPos.overlaps(other.GridPos) {
				t.Errorf("panels %q and %q overlap", other.Title, panel.Title)
			}
		}
		for _, target := range panel.Targets {
			check(t, "panel "+panel.Title, target.Expr, series)
		}
	}
	if alerts == 0 || len(dashboard.Panels) == 0 {
		t.Errorf("%d alerts, %d panels", alerts, len(dashboard.Panels))
	}

	// Each metric of the project is used.
	for name := range series {
		if base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count"); (strings.HasPrefix(name, "bpfman_") || strings.HasPrefix(name, "bpf_") || strings.HasPrefix(name, "csi_plugin_")) && !strings.Contains(string(content), base) {
			t.Errorf("the dashboard doesn't show %s", base)
		}
	}
}
