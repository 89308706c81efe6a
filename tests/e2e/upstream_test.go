// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/operator/takeover"
	"github.com/bpfman/bpfman-operator/tests/must"
	"github.com/bpfman/bpfman-operator/tests/upstream"
)

// deletion is the maximum duration of a `kubectl delete`.
const deletion = 10 * time.Second

// standIn returns what runs in place of upstream's images.
func standIn() upstream.StandIn {
	return upstream.StandIn{Image: settings.probe, Command: []string{"/node-probe", "wait"}}
}

// TestFromUpstream installs bpfman in each way where upstream's operator v0.5.6 was running, without preparation.
// Everything continues, nothing hangs, and nothing is left.
func TestFromUpstream(t *testing.T) {
	if !settings.uninstall {
		t.Skip("bpfman isn't to be uninstalled from this cluster, see `make test-lifecycle`")
	}
	requireType(t, "TCX")
	requireType(t, "Tracepoint")
	for _, method := range []string{"kustomize", "release", "helm"} {
		if method == "release" && testing.Short() {
			continue // these are kustomize's manifests, applied by the same script
		}
		if !t.Run(method, func(t *testing.T) { fromUpstream(t, method) }) {
			break
		}
	}
}

func fromUpstream(t *testing.T, method string) {
	w := newWorkload()
	var reports []v1alpha1.ProgramObject
	feature(t,
		step{"upstream's is installed", func(ctx context.Context, s *testing.T) {
			// The tested installation was needed for the probes.
			run(ctx, s, "undeploy-kustomize")
			installUpstream(ctx, s)
			w.create(ctx, s)
			for _, o := range w.programs() {
				reports = append(reports, upstreamOwns(ctx, s, o)...)
			}
		}},
		step{"ours in its place", func(ctx context.Context, s *testing.T) {
			run(ctx, s, "deploy-"+method)
			operator := get(ctx, s, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: bpfmanSpace, Name: "bpfman-operator"}})
			if containers := operator.Spec.Template.Spec.Containers; len(containers) != 1 {
				s.Errorf("the operator's pod has containers of upstream's: %v", containers)
			}
			w.awaitAttached(ctx, s)
			awaitTakenOver(ctx, s, w.programs(), reports)
			config := get(ctx, s, configMap())
			for _, words := range []string{"Removed the finalizer", "Took over DaemonSet bpfman-daemon", "reports of upstream's agent", "ClusterRole bpfman-proxy-role"} {
				await(ctx, s, "an Event says: "+words, func(ctx context.Context) (bool, string) {
					events, err := eventsAbout(ctx, config)
					return slices.ContainsFunc(events, func(e corev1.Event) bool {
						return e.Reason == takeover.ReasonTakenOver && strings.Contains(e.Message, words)
					}), fmt.Sprint(events, err)
				})
			}
		}},
		step{"objects go within seconds", func(ctx context.Context, s *testing.T) {
			for _, o := range w.programs() {
				start := time.Now()
				kubectl(ctx, s, nil, "delete", strings.ToLower(kindOf(o)), o.GetName(), "--namespace="+cmp.Or(o.GetNamespace(), "default"), "--timeout="+deletion.String())
				s.Logf("%s %s went within %v", kindOf(o), o.GetName(), time.Since(start).Round(time.Second/10))
			}
			programsFirst(ctx, s, w)
		}},
		step{"nothing is left", func(ctx context.Context, s *testing.T) {
			run(ctx, s, "undeploy-"+method)
			checkUninstalled(ctx, s, false)
		}},
	)
}

// installUpstream does the same as `kubectl apply` with upstream's manifests, and as its operator.
func installUpstream(ctx context.Context, t *testing.T) {
	t.Helper()
	objects := []client.Object{
		&corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: bpfmanSpace}},
		serviceAccount("bpfman-operator"), serviceAccount("bpfman-daemon"),
	}
	objects = append(objects, upstream.Roles(bpfmanSpace)...)
	config := upstream.ConfigMap(bpfmanSpace)
	config.Finalizers = nil
	objects = append(objects, config, upstream.Service(bpfmanSpace), upstream.Deployment(bpfmanSpace, standIn()))
	// The definitions differ from upstream's in additional fields.
	for _, kind := range slices.Concat(resourcesOf(v1alpha1.UserKinds), resourcesOf(v1alpha1.ProgramKinds)) {
		if slices.Contains(upstream.NewerResources(), kind) {
			continue
		}
		kubectl(ctx, t, nil, "apply", "-f", "../../config/crd/bases/bpfman.io_"+kind+".yaml")
	}
	var manifests bytes.Buffer
	for _, o := range objects {
		text, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&manifests, "---\n%s", text)
	}
	kubectl(ctx, t, &manifests, "apply", "-f", "-")

	modify(ctx, t, configMap(), func(c *corev1.ConfigMap) { c.Finalizers = []string{upstream.Finalizer} })
	for _, o := range []client.Object{upstream.CSIDriver(), upstream.DaemonSet(bpfmanSpace, standIn())} {
		must.Succeed(t, under.Create(ctx, o, upstream.FieldManager))
	}
	awaitNodeComponents(ctx, t, func(*appsv1.DaemonSet) bool { return true })
}

// resourcesOf returns the resource names of kinds.
func resourcesOf[O any](kinds []v1alpha1.Kind[O]) []string {
	var all []string
	for _, kind := range kinds {
		all = append(all, kind.Resource())
	}
	return all
}

func serviceAccount(name string) client.Object {
	return &corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}, ObjectMeta: metav1.ObjectMeta{Namespace: bpfmanSpace, Name: name}}
}

// upstreamOwns changes an object like upstream's operator and agents, and returns the reports.
func upstreamOwns(ctx context.Context, t *testing.T, o v1alpha1.UserObject) []v1alpha1.ProgramObject {
	t.Helper()
	change := func(what string, write func() error) {
		t.Helper()
		await(ctx, t, what, func(ctx context.Context) (bool, string) {
			if err := under.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
				return false, err.Error()
			}
			err := write()
			return err == nil, fmt.Sprint(err)
		})
	}
	change("upstream's finalizer is on "+o.GetName(), func() error {
		o.SetFinalizers([]string{upstream.Finalizer})
		return under.Update(ctx, o, upstream.FieldManager)
	})
	var reports []v1alpha1.ProgramObject
	for _, name := range under.nodes() {
		report := upstream.Report(kindOf(o), o, name, "lo")
		// As upstream's agent, whose ServiceAccount has the same name.
		must.Succeed(t, asAgent(t).Create(ctx, report, upstream.AgentFieldManager))
		report.GetStatus().Conditions = upstream.ReportConditions()
		must.Succeed(t, asAgent(t).Status().Update(ctx, report, upstream.AgentFieldManager))
		reports = append(reports, report)
	}
	return reports
}

// asAgent returns a client with all permissions and the name of the agent's ServiceAccount.
func asAgent(t *testing.T) client.Client {
	t.Helper()
	config := *under.resources.GetConfig()
	config.Impersonate.UserName = "system:serviceaccount:" + bpfmanSpace + ":bpfman-daemon"
	config.Impersonate.Groups = []string{"system:masters", "system:authenticated"}
	c, err := client.New(&config, client.Options{Scheme: under.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// awaitTakenOver waits until nothing of upstream is left in the cluster.
func awaitTakenOver(ctx context.Context, t *testing.T, objects []v1alpha1.UserObject, reports []v1alpha1.ProgramObject) {
	t.Helper()
	for _, r := range reports {
		awaitGone(ctx, t, r)
	}
	held := []client.Object{configMap(), nodeComponents()}
	for _, o := range objects {
		held = append(held, o)
	}
	for _, o := range held {
		await(ctx, t, o.GetName()+" has no finalizer", func(ctx context.Context) (bool, string) {
			err := under.Get(ctx, client.ObjectKeyFromObject(o), o)
			return err == nil && len(o.GetFinalizers()) == 0, fmt.Sprint(o.GetFinalizers(), err)
		})
	}
	for _, o := range upstream.Only(bpfmanSpace) {
		awaitGone(ctx, t, o)
	}
	env := get(ctx, t, nodeComponents()).Spec.Template.Spec.Containers[0].Env
	if env[0].ValueFrom != nil || env[0].Value == "" {
		t.Errorf("the daemon's environment is %+v", env)
	}
}

// kubectl runs kubectl like a user, and returns its output.
func kubectl(ctx context.Context, t *testing.T, input *bytes.Buffer, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	program, err := exec.LookPath(cmp.Or(os.Getenv("KUBECTL"), "kubectl"))
	if err != nil {
		prerequisite.Missing(t, "KUBECTL doesn't say where it is", prerequisite.Kubectl)
	}
	command := exec.CommandContext(ctx, program, append([]string{"--kubeconfig", settings.kubeconfig}, args...)...)
	if input != nil {
		command.Stdin = input
	}
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %q: %v: %s", args, err, out)
	}
	return string(out)
}

// TestCountsThroughTakeover switches to upstream's operator and back, while packets are sent. Every packet is
// counted, and programs stay the same.
func TestCountsThroughTakeover(t *testing.T) {
	tr := newTraffic(t, "e2e-takeover", "e2etakeover")
	var others []v1alpha1.UserObject
	var objects []v1alpha1.UserObject
	for _, o := range tr.objects {
		objects = append(objects, o)
	}
	feature(t,
		step{"programs count, and pods read", func(ctx context.Context, _ *testing.T) {
			tr.start(ctx, t)
			others = ofEachKind(ctx, t, tr.space)
			t.Cleanup(func() { scaleOperator(context.WithoutCancel(ctx), t, 1) })
		}},
		step{"upstream's in place of ours, and ours again", func(ctx context.Context, s *testing.T) {
			tr.during(ctx, s, func() {
				scaleOperator(ctx, s, 0)
				for _, o := range upstream.Only(bpfmanSpace) {
					must.Succeed(s, under.Create(ctx, o, upstream.FieldManager))
				}
				theirs := upstream.DaemonSet(bpfmanSpace, standIn())
				modifyAs(ctx, s, nodeComponents(), func(d *appsv1.DaemonSet) {
					d.Spec, d.Labels, d.Finalizers, d.OwnerReferences = theirs.Spec, theirs.Labels, theirs.Finalizers, nil
				})
				modifyAs(ctx, s, configMap(), func(c *corev1.ConfigMap) { c.Finalizers = []string{upstream.Finalizer} })
				awaitNodeComponents(ctx, s, func(d *appsv1.DaemonSet) bool { return len(d.Spec.Template.Spec.Containers) == 3 })
				var reports []v1alpha1.ProgramObject
				for _, o := range append(slices.Clone(objects), others...) {
					reports = append(reports, upstreamOwns(ctx, s, o)...)
				}
				was := get(ctx, s, nodeComponents()).UID

				scaleOperator(ctx, s, 1)
				awaitNodeComponents(ctx, s, func(d *appsv1.DaemonSet) bool { return len(d.Finalizers) == 0 && len(d.OwnerReferences) == 1 })
				awaitTakenOver(ctx, s, append(slices.Clone(objects), others...), reports)
				if get(ctx, s, nodeComponents()).UID != was {
					s.Error("another DaemonSet took the place of upstream's, which deletes its pods at once")
				}
			})
		}},
		step{"a DaemonSet that can't be changed", func(ctx context.Context, s *testing.T) {
			tr.unattended = true
			tr.during(ctx, s, func() {
				scaleOperator(ctx, s, 0)
				must.Succeed(s, remove(ctx, nodeComponents()))
				theirs := upstream.DaemonSet(bpfmanSpace, standIn())
				theirs.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"name": "another"}}
				theirs.Spec.Template.Labels["name"] = "another"
				must.Succeed(s, under.Create(ctx, theirs, upstream.FieldManager))
				scaleOperator(ctx, s, 1)
				awaitNodeComponents(ctx, s, func(d *appsv1.DaemonSet) bool { return len(d.Finalizers) == 0 && len(d.OwnerReferences) == 1 })
			})
		}},
	)
}

// ofEachKind creates objects of each kind that users write, which select no node, until the test ends.
func ofEachKind(ctx context.Context, t *testing.T, space string) []v1alpha1.UserObject {
	t.Helper()
	var all []v1alpha1.UserObject
	kinds := map[string]bool{}
	for _, c := range slices.Concat(clusterKinds(), namespacedKinds(), applicationKinds(), []kindCase{linkedKind()}) {
		o := c.object
		kinds[kindOf(o)] = true
		o.SetName(fmt.Sprintf("e2e-takeover-%d", len(all)))
		if o.GetNamespace() != "" {
			o.SetNamespace(space)
		}
		common := o.GetAppCommon()
		common.NodeSelector = metav1.LabelSelector{MatchLabels: map[string]string{"bpfman.io/e2e-node": "none"}}
		o.SetAppCommon(common)
		create(ctx, t, o)
		all = append(all, o)
	}
	for _, kind := range v1alpha1.UserKinds {
		if !kinds[kind.Name] {
			t.Errorf("no %s is created", kind.Name)
		}
	}
	return all
}

// scaleOperator sets the number of the operator's replicas, and waits for them.
func scaleOperator(ctx context.Context, t *testing.T, replicas int32) {
	t.Helper()
	changeOperator(ctx, t, func(d *appsv1.Deployment) { d.Spec.Replicas = new(replicas) })
}

// modifyAs is modify with the field manager of upstream's operator.
func modifyAs[O client.Object](ctx context.Context, t *testing.T, o O, change func(O)) {
	t.Helper()
	await(ctx, t, fmt.Sprintf("%T %s is upstream's", o, o.GetName()), func(ctx context.Context) (bool, string) {
		if err := under.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return false, err.Error()
		}
		change(o)
		err := under.Update(ctx, o, upstream.FieldManager)
		return err == nil, fmt.Sprint(err)
	})
}
