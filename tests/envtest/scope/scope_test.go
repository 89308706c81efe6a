// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package scope tests one operator and one agent on a real kube-apiserver, while its BpfApplication becomes the one of
// upstream's v0.6, which is namespaced, and back.
package scope

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/bpfman/bpfman-operator/agent"
	"github.com/bpfman/bpfman-operator/agent/bytecode"
	"github.com/bpfman/bpfman-operator/agent/metrics"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/definitions"
	"github.com/bpfman/bpfman-operator/apis/namespaced"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
	"github.com/bpfman/bpfman-operator/internal/hints"
	"github.com/bpfman/bpfman-operator/internal/reader"
	"github.com/bpfman/bpfman-operator/operator"
	"github.com/bpfman/bpfman-operator/operator/deploy"
	"github.com/bpfman/bpfman-operator/tests/envtest"
	"github.com/bpfman/bpfman-operator/tests/must"
)

const (
	root        = "../../.."
	namespace   = "bpfman"
	tenant      = "acme"
	application = "BpfApplication"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	envtest.Main(m)
}

// cluster is an API server with an operator and the agent of one node, which start again when they end, as in pods.
type cluster struct {
	*testing.T
	client.Client

	config *rest.Config
	daemon *daemontest.Daemon
	// ended receives why a process has ended.
	ended chan error
}

func start(t *testing.T) *cluster {
	t.Helper()
	config := envtest.Config(t)
	c := &cluster{t, envtest.Client(t, config), config, daemontest.NewGo(t.TempDir()), make(chan error, 100)}
	for _, name := range []string{namespace, tenant} {
		must.Succeed(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	must.Succeed(t, envtest.Apply(t.Context(), c.Client, "config/default", "Deployment"))
	must.Succeed(t, envtest.Apply(t.Context(), c.Client, "config/namespaced/states"))
	must.Succeed(t, c.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "agent", Namespace: namespace, Labels: deploy.PodLabels()},
		Spec:       corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{Name: "bpfman-agent", Image: "x"}}},
	}
	must.Succeed(t, c.Create(t.Context(), pod))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{}, 2)
	keep := func(run func(context.Context) error) {
		for ctx.Err() == nil {
			c.ended <- run(ctx)
		}
		ended <- struct{}{}
	}
	go keep(c.runOperator)
	dir := t.TempDir()
	go keep(func(ctx context.Context) error { return c.runAgent(ctx, dir) })
	t.Cleanup(func() { stop(); <-ended; <-ended })
	return c
}

func (c *cluster) runOperator(ctx context.Context) error {
	mgr, err := operator.New(envtest.As(c.config, namespace, "bpfman-operator"), operator.Options{Namespace: namespace, MetricsAddr: "0", HealthAddr: "0"})
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func (c *cluster) runAgent(ctx context.Context, dir string) error {
	config := envtest.As(c.config, namespace, "bpfman-daemon")
	config.UserAgent = "bpfman-agent" // the API server derives the writer of a report from it
	a, err := agent.New(config, agent.Options{
		NodeName: "node", Namespace: namespace, BytecodeDir: dir, BytecodeSize: 1 << 20, UprobeNamespaces: []string{"*"},
		Metrics: metrics.New(prometheus.NewRegistry()),
	}, agent.Node{
		Daemon: c.daemon, OnConnect: func(_ context.Context, f func()) { f() },
		DaemonRoot: c.daemon.Root, Bpffs: filepath.Join(c.daemon.Root, "run/bpfman/fs"), Proc: "/proc", Kernel: "6.12",
		Interfaces: func() (map[string]program.Interface, error) {
			return map[string]program.Interface{"eth0": {Index: 2}}, nil
		},
		WatchInterfaces: func(ctx context.Context, changed func(), _ func(error)) { changed(); <-ctx.Done() },
		Containers:      func(context.Context, []corev1.Pod) ([]program.Container, error) { return nil, nil },
		PodInterfaces:   func([]program.Container) {},
		Read:            func(context.Context, *reader.Request, *bytecode.Files) reader.Answer { return reader.Answer{} },
	}, logr.Discard())
	if err != nil {
		return err
	}
	return a.Run(ctx)
}

// definition returns the definition of BpfApplication in a file.
func (c *cluster) definition(file string) *apiextensionsv1.CustomResourceDefinition {
	c.Helper()
	content, err := os.ReadFile(filepath.Join(root, file))
	must.Succeed(c.T, err)
	d := &apiextensionsv1.CustomResourceDefinition{}
	must.Succeed(c.T, yaml.UnmarshalStrict(content, d))
	return d
}

// exchange replaces the definition of BpfApplication, with which all its objects go.
func (c *cluster) exchange(file string) {
	c.Helper()
	d := c.definition(file)
	must.Succeed(c.T, c.Delete(c.Context(), d.DeepCopy()))
	envtest.Eventually(c.T, "the definition is gone", func(ctx context.Context) error {
		err := c.Get(ctx, client.ObjectKeyFromObject(d), &apiextensionsv1.CustomResourceDefinition{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("it is still there"), err)
	})
	must.Succeed(c.T, c.Create(c.Context(), d))
	c.Client = envtest.Client(c.T, c.config) // a client doesn't ask again for scopes
}

// kinds returns the kinds that users write, with BpfApplication in one of its scopes.
func kinds(t *testing.T, isNamespaced bool) []v1alpha1.Kind[v1alpha1.UserObject] {
	t.Helper()
	scheme := runtime.NewScheme()
	served := []metav1.APIResource{{Kind: application, Namespaced: isNamespaced}}
	must.Succeed(t, definitions.Install(scheme, served))
	return v1alpha1.UserKindsOf(scheme)
}

// create creates the smallest object of a kind, if there is none. A program in pods isn't attached, as the node has none.
func (c *cluster) create(kind v1alpha1.Kind[v1alpha1.UserObject]) *unstructured.Unstructured {
	c.Helper()
	var members []string
	if strings.HasSuffix(kind.Name, "Application") {
		members = []string{"xdp", "uprobe"}
	}
	spec := envtest.Spec(kind.Name, members...)
	if kind.Name == application && kind.Namespaced {
		spec = envtest.NamespacedSpec(members...)
	}
	o := &unstructured.Unstructured{}
	must.Succeed(c.T, json.Unmarshal([]byte(`{"spec":`+spec+`}`), &o.Object))
	bytecode := "bytecode"
	if v1alpha1.HasLinks(kind.Name, kind.Namespaced) {
		bytecode = "byteCode"
	}
	must.Succeed(c.T, unstructured.SetNestedMap(o.Object, map[string]any{"path": "/object.o"}, "spec", bytecode))
	o.SetGroupVersionKind(kind.GroupVersionKind())
	o.SetName(strings.ToLower(kind.Name))
	if kind.Namespaced {
		o.SetNamespace(tenant)
	}
	envtest.Eventually(c.T, "create "+kind.Name, func(ctx context.Context) error { // the definition is new
		err := c.Create(ctx, o)
		return client.IgnoreAlreadyExists(err)
	})
	return o
}

// served waits until an object has succeeded, and the node's programs and reports are those of the object.
func (c *cluster) served(kind v1alpha1.Kind[v1alpha1.UserObject], o *unstructured.Unstructured) {
	c.Helper()
	envtest.Eventually(c.T, kind.Name+" is served", func(ctx context.Context) error {
		var status v1alpha1.BpfProgramStatusCommon
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		raw, _ := json.Marshal(o.Object["status"])
		if err := json.Unmarshal(raw, &status); err != nil || len(status.Conditions) == 0 {
			return fmt.Errorf("status %s: %w", raw, err)
		}
		want := "ReconcileSuccess"
		if v1alpha1.HasLinks(kind.Name, kind.Namespaced) {
			want = "Success"
		}
		if first := status.Conditions[0]; first.Type != want || status.Nodes == nil || status.Nodes.Selected != 1 || status.Nodes.Failed > 0 {
			return fmt.Errorf("status %s", raw)
		}
		if reports := c.reports(ctx, kind.Name); len(reports) == 0 || slices.ContainsFunc(reports, func(r v1alpha1.ProgramObject) bool {
			return r.GetNamespace() != o.GetNamespace() || len(r.GetOwnerReferences()) != 1 || r.GetOwnerReferences()[0].UID != o.GetUID()
		}) {
			return fmt.Errorf("reports %+v", reports)
		}
		return nil
	})
	loaded := 0
	for _, p := range c.daemon.Programs() {
		if p.Metadata[v1alpha1.MetadataKind] != kind.Name {
			continue
		}
		loaded++
		if p.Metadata[v1alpha1.MetadataNamespace] != o.GetNamespace() || p.Metadata[v1alpha1.MetadataUUID] != string(o.GetUID()) {
			c.Errorf("%s: the daemon has a program with %v", kind.Name, p.Metadata)
		}
	}
	if loaded == 0 {
		c.Errorf("%s: the daemon has none of its programs", kind.Name)
	}
}

// reports returns the reports of a kind of both scopes.
func (c *cluster) reports(ctx context.Context, kind string) []v1alpha1.ProgramObject {
	c.Helper()
	var all []v1alpha1.ProgramObject
	for _, k := range v1alpha1.ProgramKinds {
		list, ok := k.NewList().(client.ObjectList)
		if !ok {
			c.Fatalf("%T", k.NewList())
		}
		must.Succeed(c.T, c.List(ctx, list, client.MatchingLabels{v1alpha1.LabelOwnerKind: kind}))
		must.Succeed(c.T, meta.EachListItem(list, func(o runtime.Object) error {
			report, ok := o.(v1alpha1.ProgramObject)
			if !ok {
				return fmt.Errorf("%T", o)
			}
			all = append(all, report)
			return nil
		}))
	}
	return all
}

// unloaded waits until nothing is left of the objects of a kind, which the API server deleted.
func (c *cluster) unloaded(kind string, uid string) {
	c.Helper()
	envtest.Eventually(c.T, kind+" is unloaded", func(ctx context.Context) error {
		for _, p := range c.daemon.Programs() {
			if p.Metadata[v1alpha1.MetadataUUID] == uid {
				return fmt.Errorf("program %d is loaded", p.ID)
			}
		}
		for _, r := range c.reports(ctx, kind) {
			if r.GetOwnerReferences()[0].UID == "" || string(r.GetOwnerReferences()[0].UID) == uid {
				return fmt.Errorf("report %s is left", r.GetName())
			}
		}
		return nil
	})
}

// restarted waits until both processes have ended because of the other scope, and nothing else has ended.
func (c *cluster) restarted() {
	c.Helper()
	for range 2 {
		if err := <-c.ended; !errors.Is(err, definitions.ErrOtherScope) {
			c.Fatalf("a process ended: %v", err)
		}
	}
}

// One installation serves ClusterBpfApplication and each of v0.5's kinds, with either scope of BpfApplication. When the
// definition is exchanged, operator and agent start again with the other scope. Meanwhile, the objects of the other kinds stay
// as they are.
func TestEitherScope(t *testing.T) {
	c := start(t)
	var states apiextensionsv1.CustomResourceDefinition
	content, err := os.ReadFile(filepath.Join(root, "config/namespaced/states/bpfman.io_bpfapplicationstates.yaml"))
	must.Succeed(t, err)
	must.Succeed(t, yaml.UnmarshalStrict(content, &states))

	programs := map[string]string{}
	var last string
	for i, file := range []string{"", "config/namespaced/crd/bpfman.io_bpfapplications.yaml", "config/crd/bases/bpfman.io_bpfapplications.yaml"} {
		isNamespaced := i == 1
		if file != "" {
			c.exchange(file)
			c.unloaded(application, last)
		}
		all := kinds(t, isNamespaced)
		if len(all) != 17-1 {
			t.Fatalf("%d kinds", len(all))
		}
		objects := map[string]*unstructured.Unstructured{}
		for _, kind := range all {
			objects[kind.Name] = c.create(kind)
		}
		if file != "" {
			c.restarted()
		}
		for _, kind := range all {
			c.served(kind, objects[kind.Name])
		}
		last = string(objects[application].GetUID())
		envtest.Eventually(t, "hints about each kind", func(ctx context.Context) error {
			published := &corev1.ConfigMap{}
			err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: hints.ConfigMapName}, published)
			if used := hints.Parse(published.Data).Kinds; len(used) != len(all) {
				return fmt.Errorf("%v, %w", used, err)
			}
			return nil
		})
		now := map[string]string{}
		for _, p := range c.daemon.Programs() {
			if kind := p.Metadata[v1alpha1.MetadataKind]; kind != application {
				now[fmt.Sprint(p.ID)] = kind
			}
		}
		if i > 0 && !maps.Equal(now, programs) {
			t.Errorf("programs of other kinds became %v, from %v", now, programs)
		}
		programs = now
		if isNamespaced {
			c.validates()
			c.hasStates(&states)
		}
	}
	select {
	case err := <-c.ended:
		t.Errorf("a process ended: %v", err)
	default:
	}
}

// validates checks what the API server admits of BpfApplications that are namespaced.
func (c *cluster) validates() {
	c.Helper()
	sample := &unstructured.Unstructured{}
	must.Succeed(c.T, yaml.Unmarshal(must.Read(c.T, filepath.Join(root, "config/namespaced/samples/bpfapplication.yaml")), &sample.Object))
	must.Succeed(c.T, c.Create(c.Context(), sample.DeepCopy(), client.DryRunAll))
	policy := &unstructured.Unstructured{}
	must.Succeed(c.T, json.Unmarshal([]byte(`{"apiVersion":"bpfman.io/v1alpha1","kind":"BytecodePolicy","metadata":{"name":"scope"},"spec":{"mode":"enforce",
		"match":{"kinds":["BpfApplication"],"namespaces":["default"]},"rules":[{"name":"all","images":["**"],"limits":{"priority":{"min":500},"targets":["libc"]}}]}}`), &policy.Object))
	must.Succeed(c.T, c.Create(c.Context(), policy))
	defer func() { must.Succeed(c.T, c.Delete(c.Context(), policy)) }()
	for change, want := range map[string]string{
		`{}`: ``,
		`{"programs":[{"name":"fun","type":"FEntry","fentry":{"function":"do_unlinkat"}}]}`:                                                    `Unsupported value: "FEntry"`,
		`{"programs":[{"name":"fun","type":"XDP","xdp":{"links":[{"interfaceSelector":{"interfaces":["eth0"]}}]}}]}`:                           `networkNamespaces: Required value`,
		`{"programs":[{"name":"fun","type":"UProbe","uprobe":{"links":[{"target":"libc"}]}}]}`:                                                 `containers: Required value`,
		`{"programs":[{"name":"fun","type":"TCX","xdp":{}}]}`:                                                                                  `forbidden otherwise`,
		`{"programs":[{"name":"fun","type":"UProbe","uprobe":{"links":[{"target":"libc","containers":{"pods":{},"failurePolicy":"Fail"}}]}}]}`: `failurePolicy needs attachment: BeforeStart`,
		`{"globalData":{"a":"not base64"}}`: `spec.globalData: neither base64`,
		`{"programs":[{"name":"fun","type":"XDP","xdp":{"links":[{"interfaceSelector":{"interfaces":["eth0"]},"networkNamespaces":{"pods":{}},"priority":7}]}}]}`: `priority 7 is lower than 500`,
		`{"programs":[{"name":"fun","type":"URetProbe","uretprobe":{"links":[{"target":"/bin/sh","containers":{"pods":{}}}]}}]}`:                                  `target "/bin/sh" isn't allowed`,
	} {
		o := &unstructured.Unstructured{}
		must.Succeed(c.T, json.Unmarshal([]byte(`{"spec":`+envtest.NamespacedSpec("xdp")+`}`), &o.Object))
		spec, ok := o.Object["spec"].(map[string]any)
		if !ok {
			c.Fatal("no spec")
		}
		must.Succeed(c.T, json.Unmarshal([]byte(change), &spec))
		o.SetGroupVersionKind(sample.GroupVersionKind())
		o.SetNamespace(metav1.NamespaceDefault)
		o.SetName("refused")
		envtest.Eventually(c.T, change, func(ctx context.Context) error { // policies take effect later
			err := c.Create(ctx, o.DeepCopy(), client.DryRunAll)
			if want == "" {
				return err
			}
			if err == nil || !strings.Contains(err.Error(), want) {
				return fmt.Errorf("%w, want %s", err, want)
			}
			return nil
		})
	}
}

// hasStates waits until the operator has written the State of the BpfApplication, after its definition is installed, and has
// repaired it after an edit. It deletes the definition.
func (c *cluster) hasStates(definition *apiextensionsv1.CustomResourceDefinition) {
	c.Helper()
	must.Succeed(c.T, c.Create(c.Context(), definition))
	reader, err := client.New(c.config, client.Options{Scheme: c.namespacedScheme()})
	must.Succeed(c.T, err)
	var written namespaced.BpfApplicationState
	envtest.Eventually(c.T, "a State", func(ctx context.Context) error {
		var list namespaced.BpfApplicationStateList
		if err := reader.List(ctx, &list, client.InNamespace(tenant)); err != nil {
			return err
		}
		if len(list.Items) != 1 || list.Items[0].Status.Node != "node" || len(list.Items[0].Status.Programs) != 2 ||
			list.Items[0].Status.Conditions[0].Type != string(v1alpha1.ApplicationStateSuccess) {
			return fmt.Errorf("%+v", list.Items)
		}
		written = list.Items[0]
		return nil
	})
	edited := written.DeepCopy()
	edited.OwnerReferences = nil
	must.Succeed(c.T, reader.Patch(c.Context(), edited, client.MergeFrom(&written)))
	envtest.Eventually(c.T, "the State is repaired", func(ctx context.Context) error {
		var now namespaced.BpfApplicationState
		if err := reader.Get(ctx, client.ObjectKeyFromObject(&written), &now); err != nil {
			return err
		}
		if len(now.OwnerReferences) != 1 || now.UID != written.UID {
			return fmt.Errorf("%s, owned by %v", now.UID, now.OwnerReferences)
		}
		return nil
	})
	must.Succeed(c.T, c.Delete(c.Context(), definition))
}

func (c *cluster) namespacedScheme() *runtime.Scheme {
	c.Helper()
	scheme := runtime.NewScheme()
	must.Succeed(c.T, namespaced.Install(scheme))
	return scheme
}
