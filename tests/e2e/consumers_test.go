// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/consumers"
	"github.com/bpfman/bpfman-operator/tests/must"
	"github.com/bpfman/bpfman-operator/tests/node"
	readers "github.com/bpfman/bpfman-operator/tests/reader"
)

// consumed is the application of an operator of another project, as that operator sends it, with other bytecode, and without
// the programs of types that no node supports.
type consumed struct {
	*consumers.Consumer

	bytecode string
	app      *v1alpha1.ClusterBpfApplication
	// functions are those of the last request.
	functions []string
	// adapt changes what the recorded operator took from its own objects, such as interfaces.
	adapt func(*unstructured.Unstructured)
}

// trialOfType are the trials of types of programs.
var trialOfType = map[string]string{"XDP": "XDP", "TCX": "TCX", "FEntry": "Fentry", "KProbe": "Kprobe", "KRetProbe": "Kprobe", "TracePoint": "Tracepoint"}

// sends has the operator send a request, and waits until all of it is attached. It returns the programs in the daemons.
func (c *consumed) sends(ctx context.Context, test, t *testing.T, step string) []node.Program {
	t.Helper()
	body := c.Request(t, step)
	body.SetOwnerReferences(nil) // the garbage collector doesn't find the owner
	mark(body)
	must.Succeed(t, unstructured.SetNestedField(body.Object, image(c.bytecode).Image.Url, "spec", "byteCode", "image", "url"))
	if c.adapt != nil {
		c.adapt(body)
	}
	programs, _, err := unstructured.NestedSlice(body.Object, "spec", "programs")
	must.Succeed(t, err)
	c.functions = nil
	programs = slices.DeleteFunc(programs, func(p any) bool {
		of, _ := p.(map[string]any)
		name, kind := fmt.Sprint(of["name"]), fmt.Sprint(of["type"])
		supported := under.trials[trialOfType[kind]].Attached
		if supported {
			c.functions = append(c.functions, name)
		}
		return !supported
	})
	must.Succeed(t, unstructured.SetNestedSlice(body.Object, programs, "spec", "programs"))
	await(ctx, t, "the request for "+step+" succeeds", func(ctx context.Context) (bool, string) {
		err := consumers.Send(ctx, under, body.DeepCopy())
		return err == nil, fmt.Sprint(err)
	})
	if c.app == nil {
		c.app = &v1alpha1.ClusterBpfApplication{ObjectMeta: metav1.ObjectMeta{Name: body.GetName()}}
		test.Cleanup(func() { removeProgram(context.WithoutCancel(ctx), test, c.app) })
	}
	awaitSuccess(ctx, t, c.app)
	if first := c.app.Status.Conditions[0]; first.Type != "Success" || first.Status != metav1.ConditionTrue {
		t.Errorf("the first condition is %+v", first)
	}
	return c.held(ctx, t)
}

// held waits until the daemons have exactly the functions of the last request, and returns their programs.
func (c *consumed) held(ctx context.Context, t *testing.T) []node.Program {
	t.Helper()
	want := slices.Sorted(slices.Values(c.functions))
	var loaded []node.Program
	await(ctx, t, fmt.Sprintf("the daemons hold %q", want), func(ctx context.Context) (bool, string) {
		loaded = nil
		for _, name := range under.nodes() {
			on, err := loadedOn(ctx, name, c.app.UID)
			if err != nil {
				return false, err.Error()
			}
			var got []string
			for _, p := range on {
				got = append(got, p.Function)
			}
			if slices.Sort(got); !slices.Equal(got, want) {
				return false, fmt.Sprintf("%s holds %q", name, got)
			}
			loaded = append(loaded, on...)
		}
		return true, ""
	})
	return loaded
}

// pod returns a pod with the operator's volume, mount, and privileges, in which the example application reads the maps.
func (c *consumed) pod(space string) *corev1.Pod {
	pod := readers.Pod(settings.counters, space, "consumer", "", "")
	pod.Spec.SecurityContext = nil
	pod.Spec.Volumes = []corev1.Volume{c.Pod.Volume}
	container := &pod.Spec.Containers[0]
	container.VolumeMounts, container.SecurityContext = []corev1.VolumeMount{c.Pod.VolumeMount}, c.Pod.SecurityContext
	container.Args = []string{"--maps=" + c.Pod.VolumeMount.MountPath, "--interval=1s"}
	return pod
}

// opens waits until the pod has opened each of its maps: it counts them, or says that they hold no counter.
func (c *consumed) opens(ctx context.Context, t *testing.T, pod *corev1.Pod) {
	t.Helper()
	maps := strings.Split(c.Pod.Volume.CSI.VolumeAttributes[v1alpha1.VolumeAttributeMaps], ",")
	await(ctx, t, "the pod opens its maps", func(ctx context.Context) (bool, string) {
		log, err := logOf(ctx, pod)
		if err != nil {
			return false, err.Error()
		}
		for _, m := range maps {
			counted := strings.Contains(log, "\n"+m+": ")
			if !counted && !strings.Contains(log, "map "+c.Pod.VolumeMount.MountPath+"/"+m+" holds no counter") {
				return false, m + " isn't in the log: " + log
			}
		}
		return true, ""
	})
}

// counts waits until the pod reads twice in a row that a count grew. It can start again after a reload.
func counts(ctx context.Context, t *testing.T, pod *corev1.Pod, name string) {
	t.Helper()
	var before uint64
	var known bool
	await(ctx, t, "the count of "+name+" grows", func(ctx context.Context) (bool, string) {
		knock(ctx, t, pod) // nothing listens, so the packets are dropped
		log, err := logOf(ctx, pod)
		if err != nil {
			return false, err.Error()
		}
		now, read := readers.Counts(log)[name]
		grew := known && now > before
		before, known = now, read
		return grew, fmt.Sprint(now)
	})
}

// unrestarted checks that the pod still runs, with its first containers.
func unrestarted(ctx context.Context, t *testing.T, pod *corev1.Pod) {
	t.Helper()
	awaitReady(ctx, t, pod)
	if restarts := pod.Status.ContainerStatuses[0].RestartCount; restarts > 0 {
		t.Errorf("the container of pod %s restarted %d times", pod.Name, restarts)
	}
}

// TestNetObserv sends what NetObserv's operator sends when its user switches features on and off. The programs of the
// features are attached. A pod with the volume of NetObserv's agent opens all of its maps, and keeps running while they
// change.
func TestNetObserv(t *testing.T) {
	requireType(t, "TCX")
	requireType(t, "Tracepoint")
	const space = "e2e-netobserv"
	c := &consumed{Consumer: consumers.NetObserv(t), bytecode: "netobserv_stand_in"}
	pod := c.pod(space)
	var before []node.Program
	feature(t,
		step{"without features", func(ctx context.Context, s *testing.T) {
			namespace(ctx, t, space)
			create(ctx, t, pod) // it waits for the programs
			before = c.sends(ctx, t, s, "EbpfManager")
			awaitReady(ctx, s, pod)
			c.opens(ctx, s, pod)
			counts(ctx, s, pod, "global_counters")
		}},
		step{"the same request again", func(ctx context.Context, s *testing.T) {
			generation := c.app.Generation
			now := c.sends(ctx, t, s, "EbpfManager")
			if c.app.Generation != generation || !slices.Equal(ids(now), ids(before)) {
				s.Errorf("generation %d, then %d; programs %v, then %v", generation, c.app.Generation, ids(before), ids(now))
			}
		}},
		step{"with features", func(ctx context.Context, s *testing.T) {
			c.sends(ctx, t, s, "FlowRTT, DNSTracking, PacketDrop")
			awaitEvent(ctx, s, c.app, corev1.EventTypeNormal, "Reloaded")
			counts(ctx, s, pod, "global_counters")
			counts(ctx, s, pod, "aggregated_flows_pkt_drop")
			if slices.Contains(c.functions, "tcp_rcv_fentry") {
				counts(ctx, s, pod, "additional_flow_metrics")
			}
		}},
		step{"without some of them", func(ctx context.Context, s *testing.T) {
			c.sends(ctx, t, s, "FlowRTT")
			counts(ctx, s, pod, "global_counters")
			unrestarted(ctx, s, pod)
		}},
	)
}

// TestIngressNodeFirewall sends what the operator of Ingress Node Firewall sends. It attaches functions by XDP and TCX to the
// same interfaces. A privileged pod with the volume of its daemon opens all maps, and keeps running while they change.
func TestIngressNodeFirewall(t *testing.T) {
	requireType(t, "TCX")
	const space = "e2e-node-firewall"
	// The names of the interfaces in the recorded requests, and those of the test.
	interfaces := map[string]string{"eth0": "e2efirewall0", "eth1": "e2efirewall1"}
	c := &consumed{Consumer: consumers.IngressNodeFirewall(t), bytecode: "ingress_node_firewall_stand_in", adapt: func(body *unstructured.Unstructured) {
		unstructured.RemoveNestedField(body.Object, "spec", "nodeSelector", "matchLabels")
		text, err := body.MarshalJSON()
		must.Succeed(t, err)
		for recorded, name := range interfaces {
			text = bytes.ReplaceAll(text, []byte(`"`+recorded+`"`), []byte(`"`+name+`"`))
		}
		must.Succeed(t, body.UnmarshalJSON(text))
	}}
	attachedTo := func(ctx context.Context, t *testing.T, interfaces ...string) {
		t.Helper()
		var points []string
		for _, name := range interfaces {
			points = append(points, name+" ingress")
			if slices.Contains(c.functions, "xdp_ingress_node_firewall_process") {
				points = append(points, name)
			}
		}
		awaitLinks(ctx, t, c.app, points...)
	}
	pod := c.pod(space)
	var before []node.Program
	feature(t,
		step{"attached, and its maps are open", func(ctx context.Context, s *testing.T) {
			for _, name := range interfaces {
				addInterface(ctx, t, name)
			}
			namespace(ctx, t, space)
			create(ctx, t, pod)
			before = c.sends(ctx, t, s, "IngressNodeFirewall")
			attachedTo(ctx, s, "e2efirewall0")
			awaitReady(ctx, s, pod)
			c.opens(ctx, s, pod)
		}},
		step{"a further interface is no reload", func(ctx context.Context, s *testing.T) {
			now := c.sends(ctx, t, s, "interfaces")
			attachedTo(ctx, s, "e2efirewall0", "e2efirewall1")
			if !slices.Equal(ids(now), ids(before)) {
				s.Errorf("programs %v took the place of %v", ids(now), ids(before))
			}
		}},
		step{"debug sets a global", func(ctx context.Context, s *testing.T) {
			now := c.sends(ctx, t, s, "debug")
			awaitEvent(ctx, s, c.app, corev1.EventTypeNormal, "Reloaded")
			if slices.Equal(ids(now), ids(before)) {
				s.Errorf("programs %v weren't reloaded", ids(now))
			}
			unrestarted(ctx, s, pod)
		}},
	)
}
