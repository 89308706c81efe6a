// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/examples/counters"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/tests/must"
	"github.com/bpfman/bpfman-operator/tests/node"
)

const (
	// frameEvery is the interval between frames. A gap of that length is noticed.
	frameEvery = "5ms"
	// absentImage is a valid reference to an image that doesn't exist.
	absentImage = "quay.io/bpfman/e2e-absent:v0"
	// replaced is how long a node can be without node pods before objects report it.
	replaced = 20 * time.Second
)

// TestUpgrade replaces each component while packets are sent through programs. Every packet
// is counted, programs stay the same, and pods can always read the counts.
func TestUpgrade(t *testing.T) {
	if len(nextImages) < len(imageKeys)+1 {
		prerequisite.Missing(t, "BPFMAN_NEXT_IMG, BPFMAN_AGENT_NEXT_IMG, BPFMAN_CSI_NEXT_IMG, BPFMAN_INSPECTOR_NEXT_IMG and BPFMAN_OPERATOR_NEXT_IMG don't name them", prerequisite.NextImages)
	}
	tr := newTraffic(t, "e2e-upgrade", "e2eupgrade")
	upgrade := func(component string) step {
		return step{"another " + component, func(ctx context.Context, s *testing.T) {
			was := whatIsDeployed(ctx, s)
			tr.during(ctx, s, func() { edit(ctx, s, map[string]string{imageKeys[component]: nextImages[component]}) })
			was.checkOnly(ctx, s, "node components")
			checkImage(ctx, s, component, nextImages[component])
		}}
	}
	feature(t,
		step{"programs count, and pods read", func(ctx context.Context, _ *testing.T) {
			tr.start(ctx, t)
			restoreConfig(ctx, t)
		}},
		// Upgrades are compared with the effects of the daemon itself.
		step{"the bare daemon starts again", func(ctx context.Context, s *testing.T) {
			tr.during(ctx, s, func() {
				killAndAwait(ctx, s, node.Daemon)
				awaitRunning(ctx, s)
			})
		}},
		step{"another operator", func(ctx context.Context, s *testing.T) {
			was, image := whatIsDeployed(ctx, s), get(ctx, s, operatorDeployment()).Spec.Template.Spec.Containers[0].Image
			t.Cleanup(func() { setOperatorImage(context.WithoutCancel(ctx), t, image) })
			tr.during(ctx, s, func() { setOperatorImage(ctx, s, nextImages["operator"]) })
			was.checkOnly(ctx, s, "operator")
		}},
		upgrade("agent"), upgrade("csi"), upgrade("inspector"), upgrade("daemon"),
		step{"an image that isn't there, and back", func(ctx context.Context, s *testing.T) {
			good := get(ctx, s, configMap()).Data[imageKeys["agent"]]
			tr.during(ctx, s, func() {
				modify(ctx, s, configMap(), func(c *corev1.ConfigMap) { c.Data[imageKeys["agent"]] = absentImage })
				awaitFor(ctx, s, recovery, "a pod says what it lacks", func(ctx context.Context) (bool, string) {
					pods, err := componentPods(ctx)
					saw := fmt.Sprint(err)
					for i := range pods {
						for _, c := range pods[i].Status.InitContainerStatuses {
							saw += fmt.Sprintf("; %+v", c.State.Waiting)
						}
					}
					return strings.Contains(saw, "Pull") && strings.Contains(saw, absentImage), saw
				})
				edit(ctx, s, map[string]string{imageKeys["agent"]: good})
			})
		}},
		step{"without the ConfigMap, and with it", func(ctx context.Context, s *testing.T) {
			was := whatIsDeployed(ctx, s)
			tr.during(ctx, s, func() { withoutConfigMap(ctx, t, s) })
			if now := whatIsDeployed(ctx, s); now.operator != was.operator || !slices.Equal(now.operatorPods, was.operatorPods) {
				s.Errorf("the operator was rolled: %+v, then %+v", was, now)
			}
		}},
	)
}

// imageKeys are the keys of the ConfigMap for the images of node components.
var imageKeys = map[string]string{"agent": "bpfman.agent.image", "csi": "bpfman.csi.image", "inspector": "bpfman.inspector.image", "daemon": "bpfman.image"}

// checkImage checks that the pods' container of a node component runs an image.
func checkImage(ctx context.Context, t *testing.T, component, image string) {
	t.Helper()
	pods, err := componentPods(ctx)
	if err != nil || len(pods) == 0 {
		t.Fatalf("%d pods, %v", len(pods), err)
	}
	container := map[string]string{"agent": "bpfman-agent", "csi": "bpfman-csi", "inspector": "bpfman-inspector", "daemon": "bpfman"}[component]
	for _, pod := range pods {
		if !slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == container && c.Image == image }) {
			t.Errorf("container %s of pod %s doesn't run %s", container, pod.Name, image)
		}
	}
}

// withoutConfigMap deletes the ConfigMap, and with it the node components, and recreates
// it.
func withoutConfigMap(ctx context.Context, test, t *testing.T) {
	t.Helper()
	config := get(ctx, t, configMap())
	again := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: config.Namespace, Name: config.Name, Labels: config.Labels, Annotations: config.Annotations,
	}, Data: config.Data}
	must.Succeed(t, under.Delete(ctx, config))
	back := func(ctx context.Context, t *testing.T) {
		t.Helper()
		if err := under.Create(ctx, again.DeepCopy()); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	test.Cleanup(func() { back(context.WithoutCancel(ctx), test) })
	awaitFor(ctx, t, recovery, "the node components and the CSIDriver are gone", func(ctx context.Context) (bool, string) {
		pods, err := componentPods(ctx)
		driver := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.CSIDriverName}}
		driverGone := apierrors.IsNotFound(under.Get(ctx, client.ObjectKeyFromObject(driver), driver))
		daemonSet := nodeComponents()
		setGone := apierrors.IsNotFound(under.Get(ctx, client.ObjectKeyFromObject(daemonSet), daemonSet))
		return err == nil && len(pods) == 0 && driverGone && setGone, fmt.Sprintf("%d pods, DaemonSet gone: %v, CSIDriver gone: %v, %v", len(pods), setGone, driverGone, err)
	})
	back(ctx, t)
	awaitNodeComponents(ctx, t, func(*appsv1.DaemonSet) bool { return true })
	checkRegistered(ctx, t)
}

// traffic sends packets through programs of each type that the kernel can attach to an
// interface. A pod for each type reads the counts.
type traffic struct {
	space, iface string
	objects      map[string]v1alpha1.UserObject
	maps         map[string]string
	pods         []*corev1.Pod
	// unattended means that an operator starts while no agent runs, which objects report.
	unattended bool
}

func newTraffic(t *testing.T, space, iface string) *traffic {
	t.Helper()
	at := on(iface)
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: space + "-" + name} }
	tr := &traffic{
		space: space, iface: iface,
		objects: map[string]v1alpha1.UserObject{
			"XDP": xdp(meta("xdp"), at), "TC": tc(meta("tc"), at), "TCX": tcxCounter(meta("tcx"), at),
		},
		maps: map[string]string{"XDP": "xdp_stats_map", "TC": "tc_stats_map", "TCX": "tcx_stats_map"},
	}
	var refusals []string
	for kind := range tr.objects {
		if trial := under.trials[kind]; !trial.Attached {
			refusals = append(refusals, kind+": "+inTheWay(trial))
			delete(tr.objects, kind)
		}
	}
	if len(tr.objects) == 0 {
		prerequisite.Missing(t, fmt.Sprintf("this cluster attaches nothing to interfaces; the daemon itself says: %q", refusals), prerequisite.XDP, prerequisite.TC, prerequisite.TCX)
	}
	t.Logf("packets go through %q; not through %q", slices.Sorted(maps.Keys(tr.objects)), refusals)
	return tr
}

// start attaches the programs, and lets pods read them, until the test ends.
func (tr *traffic) start(ctx context.Context, t *testing.T) {
	t.Helper()
	addInterface(ctx, t, tr.iface)
	namespace(ctx, t, tr.space)
	for kind, o := range tr.objects {
		create(ctx, t, o)
		awaitAttached(ctx, t, o)
		pod := reader(tr.space, strings.ToLower(kind), o.GetName(), tr.maps[kind])
		create(ctx, t, pod)
		awaitReady(ctx, t, pod)
		tr.pods = append(tr.pods, pod)
	}
}

// during changes something while packets are sent. It checks that no packet was missed, and
// that nothing happened to the objects and the pods.
func (tr *traffic) during(ctx context.Context, t *testing.T, change func()) {
	t.Helper()
	for _, o := range tr.objects {
		awaitSuccess(ctx, t, o)
	}
	before, programs := tr.loaded(ctx, t), map[string]map[string]string{}
	started := map[string]metav1.Condition{}
	for kind, o := range tr.objects {
		started[kind] = o.GetStatus().Conditions[0]
		objects, err := programsOf(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range objects {
			name := p.GetStatus().Node
			if programs[name] == nil {
				programs[name] = map[string]string{}
			}
			programs[name][fmt.Sprint(p.GetStatus().ProgramID)] = tr.maps[kind]
		}
	}
	warned := tr.warnings(ctx, t)

	end := tr.stream(ctx, t, programs)
	begin := time.Now()
	change()
	took := time.Since(begin).Round(100 * time.Millisecond)
	for _, pod := range tr.pods {
		awaitGrowth(ctx, t, pod, "", nil)
	}
	for name, s := range end() {
		t.Logf("%s: %v; sent %d, passed %d, arrived %d, counted %v", name, took, s.Sent, s.Passed, s.Arrived, s.Counted)
		if s.Sent == 0 || s.Passed != s.Sent || s.Arrived < s.Sent {
			t.Errorf("node %s: %d packets passed and %d arrived of %d", name, s.Passed, s.Arrived, s.Sent)
		}
		for id, counted := range s.Counted {
			if counted != s.Arrived {
				t.Errorf("node %s: program %s counted %d packets of %d", name, id, counted, s.Arrived)
			}
		}
	}

	if now := tr.loaded(ctx, t); !maps.Equal(now, before) {
		t.Errorf("the daemons hold %v, before %v", now, before)
	}
	for kind, o := range tr.objects {
		awaitSuccess(ctx, t, o)
		if c, was := o.GetStatus().Conditions[0], started[kind]; took < replaced && !tr.unattended && !c.LastTransitionTime.Equal(&was.LastTransitionTime) {
			t.Errorf("%s was not successful all the time, but is so since %s", o.GetName(), c.LastTransitionTime)
		}
	}
	if now := tr.warnings(ctx, t); !slices.Equal(now, warned) {
		t.Errorf("Events tell of failures: %q, before %q", now, warned)
	}
	for _, pod := range tr.pods {
		checkUndisturbed(ctx, t, pod)
		log, err := logOf(ctx, pod)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(log, "counters: ") {
			t.Errorf("pod %s could not read: %s", pod.Name, log)
		}
	}
}

// stream sends packets on all nodes until the returned function is called.
func (tr *traffic) stream(ctx context.Context, t *testing.T, programs map[string]map[string]string) (end func() map[string]node.Stream) {
	t.Helper()
	stops := map[string]func() node.Stream{}
	for name, maps := range programs {
		command := []string{"stream", tr.iface, frameEvery}
		for id, mapName := range maps {
			command = append(command, id+"="+mapName)
		}
		stops[name] = inBackground[node.Stream](ctx, t, name, command, "end-stream", tr.iface)
		for id, mapName := range maps {
			var first uint64
			await(ctx, t, "packets stream on "+name, func(ctx context.Context) (bool, string) {
				count, err := ask[counters.Count](ctx, name, "count", id, mapName)
				if first == 0 {
					first = count.Packets
				}
				return err == nil && count.Packets > first, fmt.Sprint(count, err)
			})
		}
	}
	return func() map[string]node.Stream { return answers(stops) }
}

// loaded returns the ids of the programs, by owner.
func (tr *traffic) loaded(ctx context.Context, t *testing.T) map[string]string {
	t.Helper()
	loaded := map[string]string{}
	for kind, o := range tr.objects {
		loaded[kind] = fmt.Sprint(ids(exactly(ctx, t, o, 1)))
	}
	return loaded
}

// warnings returns the Warning Events about the objects and the pods.
func (tr *traffic) warnings(ctx context.Context, t *testing.T) []string {
	t.Helper()
	var warnings []string
	about := func(o client.Object) {
		events, err := eventsAbout(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			if e.Type == corev1.EventTypeWarning && !pluginAway(e) {
				warnings = append(warnings, fmt.Sprintf("%s: %s %s (%d)", o.GetName(), e.Reason, e.Message, e.Count))
			}
		}
	}
	for _, o := range tr.objects {
		about(o)
	}
	for _, pod := range tr.pods {
		about(pod)
	}
	slices.Sort(warnings)
	return warnings
}
