// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package chart tests that the Helm chart deploys the same as kustomize, and what its values change. It needs
// helm, from HELM or from the output of `make helm`, and the complete chart, the output of `make chart`.
package chart

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	psa "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/examples/mapmetrics"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/operator/deploy"
	"github.com/bpfman/bpfman-operator/operator/installed"
	"github.com/bpfman/bpfman-operator/tests/must"
)

const root = "../.."

// helm runs helm. It skips the test if there is none.
func helm(t *testing.T, arguments ...string) ([]byte, error) {
	t.Helper()
	program := cmp.Or(os.Getenv("HELM"), filepath.Join(root, "bin", "helm"))
	if _, err := os.Stat(program); err != nil {
		prerequisite.Missing(t, "run `make helm` first", prerequisite.Helm)
	}
	command := exec.CommandContext(t.Context(), program, arguments...)
	// Without the user's settings, and without a cluster.
	command.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		err = errors.New(stderr.String())
	}
	return output, err
}

type objects map[string]map[string]any

func (o objects) add(t *testing.T, document []byte) {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(document, &object.Object); err != nil {
		t.Fatalf("%v in:\n%s", err, document)
	}
	if len(object.Object) == 0 {
		return
	}
	key := strings.Join([]string{object.GetKind(), object.GetNamespace(), object.GetName()}, " ")
	if _, twice := o[key]; twice {
		t.Errorf("%s is there twice", key)
	}
	o[key] = object.Object
}

// get decodes an object of the chart.
func get[T any](t *testing.T, o objects, key string) T {
	t.Helper()
	var typed T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o[key], &typed, true); err != nil {
		t.Fatalf("%s: %v", key, err)
	}
	return typed
}

// template renders the chart, with settings such as csi.enabled=false.
func template(t *testing.T, namespace string, settings ...string) objects {
	t.Helper()
	return render(t, namespace, []string{"--skip-tests"}, settings...)
}

func render(t *testing.T, namespace string, flags []string, settings ...string) objects {
	t.Helper()
	arguments := append([]string{"template", "bpfman", filepath.Join(root, "charts", "bpfman-operator"), "--namespace", namespace, "--set", "images.loaded=true"}, flags...)
	for _, setting := range settings {
		arguments = append(arguments, "--set-json", setting)
	}
	output, err := helm(t, arguments...)
	if err != nil {
		t.Fatal(err)
	}
	rendered := objects{}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(output)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return rendered
		}
		if err != nil {
			t.Fatal(err)
		}
		rendered.add(t, document)
	}
}

func kustomize(t *testing.T, overlay string) objects {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(root, overlay))
	if err != nil {
		t.Fatal(err)
	}
	built := objects{}
	for _, resource := range resources.Resources() {
		built.add(t, []byte(resource.MustYaml()))
	}
	return built
}

// same compares all objects, with values as decoded from YAML.
func same(t *testing.T, chart, built objects) {
	t.Helper()
	// Helm needs the namespace before it creates objects of the chart.
	delete(built, "Namespace  bpfman")
	for _, key := range keptUntilThePodsEnd {
		object := &unstructured.Unstructured{Object: chart[key]}
		object.SetAnnotations(nil)
	}
	for _, key := range slices.Sorted(maps.Keys(built)) {
		if there, ok := chart[key]; !ok {
			t.Errorf("the chart has no %s", key)
		} else if diff := gocmp.Diff(built[key], there); diff != "" {
			t.Errorf("%s is not the same in the chart (make chart): %s", key, diff)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(chart)) {
		if _, ok := built[key]; !ok {
			t.Errorf("the chart alone has %s", key)
		}
	}
}

// keptUntilThePodsEnd are the objects that Helm doesn't delete. With them, an agent that ends finds out whether bpfman
// is being uninstalled.
var keptUntilThePodsEnd = []string{
	"Role bpfman bpfman-agent-policy-role", "RoleBinding bpfman bpfman-agent-policy-rolebinding", "ServiceAccount bpfman bpfman-daemon",
}

// TestAgentsCanFindOutThatTheyAreUninstalled checks that the agent can get the ConfigMap after `helm uninstall`, which
// deletes roles before ConfigMaps. Nothing is kept that isn't deleted with the namespace.
func TestAgentsCanFindOutThatTheyAreUninstalled(t *testing.T) {
	rendered := template(t, "bpfman", "crds.keep=false")
	var kept []string
	for key, object := range rendered {
		if (&unstructured.Unstructured{Object: object}).GetAnnotations()["helm.sh/resource-policy"] == "keep" {
			kept = append(kept, key)
		}
	}
	slices.Sort(kept)
	if !slices.Equal(kept, keptUntilThePodsEnd) {
		t.Fatalf("Helm keeps %q, not %q", kept, keptUntilThePodsEnd)
	}
	role, binding := get[rbacv1.Role](t, rendered, kept[0]), get[rbacv1.RoleBinding](t, rendered, kept[1])
	account := get[corev1.ServiceAccount](t, rendered, kept[2])
	get := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"}}
	if binding.RoleRef.Name != role.Name || len(binding.Subjects) != 1 || binding.Subjects[0].Name != account.Name ||
		!slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return reflect.DeepEqual(r, get) }) {
		t.Errorf("%s may %v, by %v of %v", account.Name, role.Rules, binding.RoleRef, binding.Subjects)
	}
}

func TestChartIsConfigDefault(t *testing.T) {
	same(t, template(t, "bpfman", "crds.keep=false"), kustomize(t, "config/default"))
}

func TestChartWithMonitoring(t *testing.T) {
	same(t, template(t, "bpfman", "crds.keep=false", "monitoring.enabled=true"), kustomize(t, "config/monitoring"))
}

// The definition of States goes when it isn't wanted anymore, as when a release is rolled back to a version without it. Only
// the operator writes such objects.
func TestChartWithStates(t *testing.T) {
	want := kustomize(t, "config/default")
	maps.Copy(want, kustomize(t, "config/states"))
	same(t, template(t, "bpfman", "crds.keep=false", "crds.states=true"), want)
	rendered := template(t, "bpfman", "crds.states=true")
	for name, kept := range map[string]string{"clusterbpfapplicationstates": "", "clusterbpfapplications": "keep"} {
		object := unstructured.Unstructured{Object: rendered["CustomResourceDefinition  "+name+".bpfman.io"]}
		if got := object.GetAnnotations()["helm.sh/resource-policy"]; object.Object == nil || got != kept {
			t.Errorf("the policy of %s is %q", name, got)
		}
	}
}

// With the value, the chart deploys the same as the overlay with the namespaced BpfApplication.
func TestChartWithNamespacedApplications(t *testing.T) {
	want := kustomize(t, "config/namespaced")
	same(t, template(t, "bpfman", "crds.keep=false", `crds.bpfApplication="Namespaced"`), want)
	key := "CustomResourceDefinition  bpfapplications.bpfman.io"
	kept := unstructured.Unstructured{Object: template(t, "bpfman", `crds.bpfApplication="Namespaced"`)[key]}
	if scope, _, err := unstructured.NestedString(kept.Object, "spec", "scope"); err != nil || scope != "Namespaced" || kept.GetAnnotations()["helm.sh/resource-policy"] != "keep" {
		t.Errorf("scope %s, %v, annotations %v", scope, err, kept.GetAnnotations())
	}
	maps.Copy(want, kustomize(t, "config/states"))
	maps.Copy(want, kustomize(t, "config/namespaced/states"))
	same(t, template(t, "bpfman", "crds.keep=false", "crds.states=true", `crds.bpfApplication="Namespaced"`), want)
}

// TestValuesOfOverlays checks that an overlay and the corresponding values deploy the same.
func TestValuesOfOverlays(t *testing.T) {
	for _, overlay := range []string{"config/one-node", "config/hardened"} {
		t.Run(overlay, func(t *testing.T) {
			content := must.Read(t, filepath.Join(root, overlay, "values.yaml"))
			var values map[string]any
			must.Succeed(t, yaml.Unmarshal(content, &values))
			settings := []string{"crds.keep=false"}
			for _, key := range slices.Sorted(maps.Keys(values)) {
				value, err := json.Marshal(values[key])
				if err != nil {
					t.Fatal(err)
				}
				settings = append(settings, key+"="+string(value))
			}
			same(t, template(t, "bpfman", settings...), kustomize(t, overlay))
		})
	}
}

func TestDefinitionsAreKept(t *testing.T) {
	kept := 0
	for key, object := range template(t, "bpfman") {
		if strings.HasPrefix(key, "CustomResourceDefinition ") {
			kept++
			annotations := (&unstructured.Unstructured{Object: object}).GetAnnotations()
			if annotations["helm.sh/resource-policy"] != "keep" {
				t.Errorf("uninstalling deletes %s", key)
			}
		}
	}
	if want := len(v1alpha1.AllKinds()); kept != want {
		t.Errorf("%d definitions, want %d", kept, want)
	}
	for key := range template(t, "bpfman", "crds.install=false") {
		if strings.HasPrefix(key, "CustomResourceDefinition ") {
			t.Errorf("%s is there", key)
		}
	}
}

// In another namespace, nothing must refer to the default one.
func TestOtherNamespace(t *testing.T) {
	for key, object := range template(t, "elsewhere", "monitoring.enabled=true") {
		text, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		for _, usual := range []string{"namespace: bpfman\n", "serviceaccount:bpfman:", "- bpfman\n"} {
			// In definitions and dashboards, "bpfman" is a category and a tag.
			if !strings.HasPrefix(key, "CustomResourceDefinition ") && strings.Contains(string(text), usual) {
				t.Errorf("%s has %q", key, usual)
			}
		}
	}
}

func TestValuesReachTheNodes(t *testing.T) {
	rendered := template(t, "bpfman",
		`images={"agent":"example.com/agent:1","pullPolicy":"Always","pullSecrets":["one","two"]}`,
		`logLevels={"daemon":"bpfman=debug","agent":"trace"}`,
		`kubeletRoot="/data/kubelet"`,
		`nodes.nodeSelector={"ebpf":"true","zone":"a"}`,
		`nodes.tolerations=[{"key":"a","operator":"Exists"}]`,
		`nodes.resources={"bpfman-agent":{"limits":{"memory":"100Mi"}}}`,
		`csi={"clusterAccess":"rbac"}`,
		`inspector={"metricsAddress":":9172","statistics":true}`,
		// A key that also has its own value.
		`config={"bpfman.csi.log.level":"debug"}`,
	)
	configMap := get[corev1.ConfigMap](t, rendered, "ConfigMap bpfman bpfman-config")
	config, unknown, err := deploy.ParseConfig(configMap.Data)
	if err != nil || len(unknown) > 0 {
		t.Fatalf("unknown keys %q, error %v", unknown, err)
	}
	agent := config.Resources["bpfman-agent"]
	if config.Agent.Image != "example.com/agent:1" || config.PullPolicy != corev1.PullAlways || !slices.Equal(config.PullSecrets, []string{"one", "two"}) ||
		config.Daemon.LogLevel != "bpfman=debug" || config.Agent.LogLevel != "trace" || config.CSI.LogLevel != "debug" || config.KubeletRoot != "/data/kubelet" ||
		!maps.Equal(config.NodeSelector, map[string]string{"ebpf": "true", "zone": "a"}) ||
		!reflect.DeepEqual(config.Tolerations, []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists}}) ||
		agent.Limits.Memory().String() != "100Mi" ||
		config.CSI.ClusterAccess != deploy.ClusterAccessRBAC || config.CSI.Disabled ||
		config.Inspector.MetricsAddr != ":9172" || !config.Inspector.Statistics || config.Inspector.Disabled {
		t.Errorf("got %+v", config)
	}
	disabled := get[corev1.ConfigMap](t, template(t, "bpfman", "csi.enabled=false", "inspector.enabled=false"), "ConfigMap bpfman bpfman-config")
	if config, _, err := deploy.ParseConfig(disabled.Data); err != nil || !config.CSI.Disabled || !config.Inspector.Disabled {
		t.Errorf("plugin and inspector aren't disabled: %v", err)
	}
}

func TestValuesReachTheOperator(t *testing.T) {
	rendered := template(t, "bpfman",
		`images={"operator":"example.com/operator:1","pullPolicy":"Always","pullSecrets":["one"]}`,
		`logLevels.operator="debug"`,
		`operator={"replicas":2,"nodeSelector":{"a":"b"},"tolerations":[{"operator":"Exists"}],"resources":{"limits":{"memory":"2Gi"}}}`,
	)
	deployment := get[appsv1.Deployment](t, rendered, "Deployment bpfman bpfman-operator")
	pod := deployment.Spec.Template.Spec
	container := pod.Containers[0]
	if *deployment.Spec.Replicas != 2 || container.Image != "example.com/operator:1" || container.ImagePullPolicy != corev1.PullAlways ||
		container.Env[0].Value != "debug" || container.Resources.Limits.Memory().String() != "2Gi" ||
		!maps.Equal(pod.NodeSelector, map[string]string{"a": "b"}) ||
		!reflect.DeepEqual(pod.Tolerations, []corev1.Toleration{{Operator: corev1.TolerationOpExists}}) ||
		!slices.Equal(pod.ImagePullSecrets, []corev1.LocalObjectReference{{Name: "one"}}) {
		t.Errorf("got %+v", deployment.Spec)
	}
}

func TestProxy(t *testing.T) {
	for name, c := range map[string]struct {
		values string
		want   map[string]string
	}{
		"none":       {`proxy.exceptions="10.0.0.0/8"`, map[string]string{}},
		"everything": {`proxy.url="http://proxy:3128"`, map[string]string{"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": ""}},
		"exceptions": {`proxy={"url":"http://proxy:3128","exceptions":".example.com,10.0.0.0/8"}`, map[string]string{"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": ".example.com,10.0.0.0/8"}},
	} {
		t.Run(name, func(t *testing.T) {
			deployment := get[appsv1.Deployment](t, template(t, "bpfman", c.values), "Deployment bpfman bpfman-operator")
			got := map[string]string{}
			for _, v := range deployment.Spec.Template.Spec.Containers[0].Env {
				if strings.HasSuffix(v.Name, "_PROXY") {
					got[v.Name] = v.Value
				}
			}
			if !maps.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestExporter checks that the exporter is only deployed on request, and that its pod satisfies the Pod Security
// Standard restricted.
func TestExporter(t *testing.T) {
	rendered := template(t, "elsewhere", "monitoring.enabled=true",
		`exporter={"enabled":true,"program":"packets","kind":"TcxProgram","maps":[
			{"name":"tcx_stats_map","metrics":[{"name":"packets_total","field":"0"}]},
			{"name":"other","labels":["port"],"metrics":[{"name":"other_total"}]}]}`)
	pod := get[appsv1.DaemonSet](t, rendered, "DaemonSet elsewhere bpfman-map-exporter").Spec.Template
	restricted(t, &pod.ObjectMeta, &pod.Spec)
	want := map[string]string{
		"csi.bpfman.io/program": "packets", "csi.bpfman.io/kind": "TcxProgram", "csi.bpfman.io/maps": "tcx_stats_map,other",
	}
	if got := pod.Spec.Volumes[0].CSI.VolumeAttributes; !maps.Equal(got, want) {
		t.Errorf("the volume is of %v, not %v", got, want)
	}
	config, err := mapmetrics.ParseConfig([]byte(get[corev1.ConfigMap](t, rendered, "ConfigMap elsewhere bpfman-map-exporter").Data["config.yaml"]))
	if err != nil || len(config.Maps) != 2 || config.Maps[0].Metrics[0].Field != "0" || config.Maps[1].Labels[0].Name != "port" {
		t.Errorf("the exporter reads %+v, error %v", config, err)
	}
	if rendered["PodMonitor elsewhere bpfman-map-exporter"] == nil {
		t.Error("nobody scrapes it")
	}
	rendered = template(t, "elsewhere", `exporter={"enabled":true,"program":"packets","prefix":"ebpf_exporter_","metrics":{
		"counters":[{"name":"softirqs_total"}],
		"histograms":[{"name":"wait_seconds","bucket_type":"exp2","bucket_max":27,"labels":[{"name":"bucket","size":8,"decoders":[{"name":"uint"}]}]}]}}`)
	attributes := get[appsv1.DaemonSet](t, rendered, "DaemonSet elsewhere bpfman-map-exporter").Spec.Template.Spec.Volumes[0].CSI.VolumeAttributes
	if got := attributes["csi.bpfman.io/maps"]; got != "softirqs_total,wait_seconds" {
		t.Errorf("with ebpf_exporter's configuration, the volume has %s", got)
	}
	config, err = mapmetrics.ParseConfig([]byte(get[corev1.ConfigMap](t, rendered, "ConfigMap elsewhere bpfman-map-exporter").Data["config.yaml"]))
	if err != nil || len(config.Maps) != 2 || config.Maps[1].Metrics[0].Name != "ebpf_exporter_wait_seconds" {
		t.Errorf("the exporter reads %+v, error %v", config, err)
	}
	for _, settings := range []string{`{"enabled":true}`, `{"enabled":true,"program":"packets"}`, `{"enabled":true,"program":"packets","maps":[{"name":"m"}]}`} {
		if _, err := helm(t, "template", "bpfman", filepath.Join(root, "charts", "bpfman-operator"), "--set-json", "exporter="+settings); err == nil {
			t.Errorf("exporter=%s is taken", settings)
		}
	}
	const valid = `exporter={"enabled":true,"program":"packets","maps":[{"name":"m","metrics":[{"name":"m_total"}]}]}`
	if _, err := helm(t, "template", "bpfman", filepath.Join(root, "charts", "bpfman-operator"), "--set", "images.loaded=true,csi.enabled=false", "--set-json", valid); err == nil || !strings.Contains(err.Error(), "needs csi.enabled") {
		t.Errorf("without the CSI plugin: %v", err)
	}
}

// What decoders and bpf(2) need is set on request. A label that the chart sets itself isn't there twice.
func TestExporterOfOtherMaps(t *testing.T) {
	rendered := template(t, "elsewhere", `nodes.nodeSelector={"kubernetes.io/os":"linux","ebpf":"true"}`,
		`exporter={"enabled":true,"program":"packets","maps":[{"name":"m","metrics":[{"name":"m_total"}]}],
			"cgroups":true,"hostNetwork":true,"seccompProfile":{"type":"Unconfined"}}`)
	pod := get[appsv1.DaemonSet](t, rendered, "DaemonSet elsewhere bpfman-map-exporter").Spec.Template.Spec
	if !pod.HostNetwork || pod.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeUnconfined {
		t.Errorf("hostNetwork is %v, the profile %+v", pod.HostNetwork, pod.SecurityContext.SeccompProfile)
	}
	if want := map[string]string{"kubernetes.io/os": "linux", "ebpf": "true"}; !maps.Equal(pod.NodeSelector, want) {
		t.Errorf("node selector is %v", pod.NodeSelector)
	}
	// As with --reuse-values, of a chart that had no such value.
	rendered = template(t, "elsewhere", `exporter={"enabled":true,"program":"packets","maps":[{"name":"m","metrics":[{"name":"m_total"}]}],"seccompProfile":null}`)
	reused := get[appsv1.DaemonSet](t, rendered, "DaemonSet elsewhere bpfman-map-exporter").Spec.Template.Spec
	if profile := reused.SecurityContext.SeccompProfile; profile == nil || profile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("without a value, the profile is %+v", profile)
	}
	container := pod.Containers[0]
	mounted := slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool {
		return slices.Contains(container.Args, "--cgroups="+m.MountPath) && m.ReadOnly && slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool {
			return v.Name == m.Name && v.HostPath != nil && v.HostPath.Path == "/sys/fs/cgroup"
		})
	})
	if !mounted {
		t.Errorf("%q with %+v", container.Args, container.VolumeMounts)
	}
}

// setting matches a setting in a command of the documentation.
var setting = regexp.MustCompile("--(set|set-string) ([^\\s`]+=[^\\s`,]+)")

// pages returns the pages, and the chart's own with its notes.
func pages(t *testing.T) []string {
	t.Helper()
	found := []string{filepath.Join(root, "README.md"), filepath.Join(root, "charts/bpfman-operator/README.md"), filepath.Join(root, "charts/bpfman-operator/templates/NOTES.txt")}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" {
			found = append(found, path)
		}
		return err
	})
	must.Succeed(t, err)
	return found
}

// helmCommand finds a command of Helm in a line of code or between backticks.
var helmCommand = regexp.MustCompile("(?m)(?:^[ \\t]*(?:[$] )?|`)helm ([^`\n|;&<>]+)")

// TestDocumentedCommands has Helm parse each of its commands in the documentation. With --help, it does nothing else.
func TestDocumentedCommands(t *testing.T) {
	parse := func(command string) error {
		output, err := helm(t, append(strings.Fields(command), "--help")...)
		// Of a command that doesn't exist, it prints its own help.
		if err == nil && bytes.HasPrefix(output, []byte("The Kubernetes package manager")) {
			err = errors.New("there is no such command")
		}
		return err
	}
	for _, bad := range []string{"frob bpfman", "install bpfman --everything"} {
		if parse(bad) == nil {
			t.Errorf("helm %s is parsed", bad)
		}
	}
	found := 0
	for _, path := range pages(t) {
		for _, match := range helmCommand.FindAllStringSubmatch(string(must.Read(t, path)), -1) {
			found++
			if err := parse(match[1]); err != nil {
				t.Errorf("%s: helm %s: %v", path, match[1], err)
			}
		}
	}
	if found < 10 {
		t.Errorf("found only %d commands", found)
	}
}

// TestValuesOfThePage checks that the chart has each value in the table on its own page.
func TestValuesOfThePage(t *testing.T) {
	var values map[string]any
	must.Succeed(t, yaml.UnmarshalStrict(must.Read(t, filepath.Join(root, "charts/bpfman-operator/values.yaml")), &values))
	page := string(must.Read(t, filepath.Join(root, "charts/bpfman-operator/README.md")))
	_, table, _ := strings.Cut(page, "`helm show values")
	rows := regexp.MustCompile("(?m)^\\| `([A-Za-z.]+)` \\|").FindAllStringSubmatch(table, -1)
	for _, row := range rows {
		if _, found, err := unstructured.NestedFieldNoCopy(values, strings.Split(row[1], ".")...); !found || err != nil {
			t.Errorf("there is no value %s: %v", row[1], err)
		}
	}
	if len(rows) == 0 {
		t.Error("the page has no table of values")
	}
}

// Helm accepts each setting in the documentation as it is there, and the operator what becomes of it.
func TestDocumentedSettings(t *testing.T) {
	found := 0
	for _, path := range pages(t) {
		for _, match := range setting.FindAllStringSubmatch(string(must.Read(t, path)), -1) {
			found++
			rendered := render(t, "bpfman", []string{"--skip-tests", "--" + match[1], match[2]})
			config := get[corev1.ConfigMap](t, rendered, "ConfigMap bpfman bpfman-config")
			if _, _, err := deploy.ParseConfig(config.Data); err != nil {
				t.Errorf("%s: %s: %v", path, match[0], err)
			}
		}
	}
	if found == 0 {
		t.Error("no settings")
	}
}

// The page about the installation lists each value, or the page about the configuration does.
func TestValuesAreListed(t *testing.T) {
	rows, ofKeys := map[string]string{}, map[string]bool{}
	for _, key := range deploy.Keys() {
		ofKeys[key.Value] = true
	}
	for line := range strings.Lines(string(must.Read(t, filepath.Join(root, "docs/install.md")))) {
		if cells := strings.SplitN(line, "|", 3); len(cells) == 3 {
			for name := range strings.SplitSeq(cells[1], ",") {
				rows[strings.Trim(name, " `")] = cells[2]
			}
		}
	}
	var values map[string]any
	must.Succeed(t, yaml.UnmarshalStrict(must.Read(t, filepath.Join(root, "charts/bpfman-operator/values.yaml")), &values))
	for name, value := range values {
		row, listed := rows[name]
		if !listed {
			t.Errorf("%s isn't listed", name)
		}
		section, _ := value.(map[string]any)
		for key := range section {
			if !ofKeys[name+"."+key] && !strings.Contains(row, "`"+key+"`") {
				t.Errorf("%s.%s isn't listed", name, key)
			}
		}
	}
}

// TestHelmTest checks that `helm test` checks what the chart installs, with minimal permissions, and leaves
// nothing.
func TestHelmTest(t *testing.T) {
	settings := []string{`images={"operator":"example.com/operator:1","pullSecrets":["one"]}`, `operator.nodeSelector={"zone":"1"}`}
	tests := render(t, "elsewhere", []string{"--show-only", "templates/test.yaml"}, settings...)
	for key, object := range tests {
		annotations := (&unstructured.Unstructured{Object: object}).GetAnnotations()
		if annotations["helm.sh/hook"] != "test" || annotations["helm.sh/hook-delete-policy"] != "before-hook-creation,hook-succeeded" {
			t.Errorf("%s is installed, or stays: %v", key, annotations)
		}
	}
	const name = "elsewhere bpfman-test"
	role := get[rbacv1.Role](t, tests, "Role "+name)
	want := []rbacv1.PolicyRule{
		{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, ResourceNames: []string{installed.DeploymentName}, Verbs: []string{"get"}},
		{APIGroups: []string{"apps"}, Resources: []string{"daemonsets"}, ResourceNames: []string{deploy.DaemonSetName}, Verbs: []string{"get"}},
	}
	if diff := gocmp.Diff(want, role.Rules); diff != "" {
		t.Errorf("rights: %s", diff)
	}
	binding := get[rbacv1.RoleBinding](t, tests, "RoleBinding "+name)
	pod := get[corev1.Pod](t, tests, "Pod "+name)
	account := get[corev1.ServiceAccount](t, tests, "ServiceAccount "+name)
	if binding.RoleRef.Name != role.Name || !slices.Equal(binding.Subjects, []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "elsewhere", Name: account.Name}}) || pod.Spec.ServiceAccountName != account.Name {
		t.Errorf("the pod runs as %s, and the rights go by %v to %v", pod.Spec.ServiceAccountName, binding.RoleRef, binding.Subjects)
	}
	operator := get[appsv1.Deployment](t, template(t, "elsewhere", settings...), "Deployment elsewhere "+installed.DeploymentName)
	container := pod.Spec.Containers[0]
	if container.Image != operator.Spec.Template.Spec.Containers[0].Image || !slices.Equal(container.Args, []string{"--check-installation=2m"}) {
		t.Errorf("it runs %s %v", container.Image, container.Args)
	}
	if pod.Spec.NodeSelector["zone"] != "1" || !slices.Equal(pod.Spec.ImagePullSecrets, []corev1.LocalObjectReference{{Name: "one"}}) {
		t.Errorf("it doesn't follow the values: %+v", pod.Spec)
	}
	restricted(t, &pod.ObjectMeta, &pod.Spec)
}

// restricted evaluates the Pod Security Standard restricted.
func restricted(t *testing.T, meta *metav1.ObjectMeta, spec *corev1.PodSpec) {
	t.Helper()
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	level := psa.LevelVersion{Level: psa.LevelRestricted, Version: psa.LatestVersion()}
	if result := policy.AggregateCheckResults(evaluator.EvaluatePod(level, meta, spec)); !result.Allowed {
		t.Error(result.ForbiddenDetail())
	}
}

// A misspelled value is refused, not ignored.
func TestMisspeltValues(t *testing.T) {
	for _, setting := range []string{`kubeletroot="/x"`, `csi={"enable":false}`, `logLevels={"agent":"loud"}`, `nodes={"resources":{"agent":{}}}`} {
		if _, err := helm(t, "template", "bpfman", filepath.Join(root, "charts", "bpfman-operator"), "--set", "images.loaded=true", "--set-json", setting); err == nil {
			t.Errorf("%s is taken", setting)
		}
	}
}

// In a checkout, the default image names in the values are those of upstream's images.
func TestUpstreamsImagesAreRefused(t *testing.T) {
	chart := filepath.Join(root, "charts", "bpfman-operator")
	digest := "@sha256:" + strings.Repeat("a", 64)
	for name, c := range map[string]struct {
		settings []string
		refused  string
	}{
		"defaults": {nil, "images.operator is quay.io/bpfman/bpfman-operator:latest"},
		"agent alone": {
			[]string{"images.operator=example.com/operator", "images.csi=example.com/csi:1", "images.agent=quay.io/bpfman/bpfman-agent:v0.6.0"},
			"images.agent is quay.io/bpfman/bpfman-agent:v0.6.0",
		},
		"own": {[]string{"images.operator=example.com/operator", "images.csi=example.com/csi:1", "images.agent=example.com/bpfman/bpfman-agent", "images.inspector=example.com/inspector"}, ""},
		"digests": {
			[]string{
				"images.operator=quay.io/bpfman/bpfman-operator" + digest, "images.agent=quay.io/bpfman/bpfman-agent:v0.6.0" + digest,
				"images.csi=quay.io/bpfman/bpfman-csi" + digest, "images.inspector=quay.io/bpfman/bpfman-inspector" + digest,
			},
			"",
		},
		"loaded": {[]string{"images.loaded=true"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			arguments := []string{"template", "bpfman", chart}
			for _, setting := range c.settings {
				arguments = append(arguments, "--set", setting)
			}
			_, err := helm(t, arguments...)
			if (err == nil) != (c.refused == "") || (err != nil && !strings.Contains(err.Error(), c.refused)) {
				t.Errorf("got %v, want %q", err, c.refused)
			}
		})
	}
}

func TestLint(t *testing.T) {
	if output, err := helm(t, "lint", "--strict", "--set", "images.loaded=true", filepath.Join(root, "charts", "bpfman-operator")); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
}

// schema is the part of JSON Schema that values.schema.json uses.
type schema struct {
	Description string            `json:"description"`
	Properties  map[string]schema `json:"properties"`
}

// TestValuesAreDescribed checks that the schema describes each value, and that unknown values and wrong types are
// refused.
func TestValuesAreDescribed(t *testing.T) {
	var described schema
	content := must.Read(t, filepath.Join(root, "charts/bpfman-operator/values.schema.json"))
	must.Succeed(t, json.Unmarshal(content, &described))
	content = must.Read(t, filepath.Join(root, "charts/bpfman-operator/values.yaml"))
	var values map[string]any
	must.Succeed(t, yaml.UnmarshalStrict(content, &values))

	var compare func(path string, values map[string]any, s schema)
	compare = func(path string, values map[string]any, s schema) {
		for name, property := range s.Properties {
			if property.Description == "" {
				t.Errorf("%s%s has no description", path, name)
			}
		}
		for name, value := range values {
			property, found := s.Properties[name]
			if !found {
				t.Errorf("%s%s isn't in the schema", path, name)
			}
			if section, ok := value.(map[string]any); ok && len(property.Properties) > 0 {
				compare(path+name+".", section, property)
			}
		}
	}
	compare("", values, described)

	for _, wrong := range []string{"typo=1", "images.typo=x", "csi.clusterAccess=none", "operator.replicas=many", "crds.keep=sometimes", "kubeletRoot=relative", "agent.metricsAddress=0", "csi.metricsAddress=0", "inspector.metricsAddress=0"} {
		if _, err := helm(t, "template", filepath.Join(root, "charts/bpfman-operator"), "--set", "images.loaded=true", "--set", wrong); err == nil || !strings.Contains(err.Error(), "values don't meet the specifications of the schema") {
			t.Errorf("--set %s: %v", wrong, err)
		}
	}
	// The operator's defaults apply, as to an empty key of the ConfigMap.
	empty := "agent.healthProbeAddress=,agent.metricsAddress=,csi.metricsAddress=,inspector.metricsAddress="
	if _, err := helm(t, "template", filepath.Join(root, "charts/bpfman-operator"), "--set", "images.loaded=true", "--set", empty); err != nil {
		t.Errorf("--set %s: %v", empty, err)
	}
}
