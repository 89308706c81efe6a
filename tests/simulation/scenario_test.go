// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package simulation_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cilium/ebpf"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/simulation"
)

// tcx returns an object for the uplink of all nodes.
func tcx(name, function string) *v1alpha1.TcxProgram {
	o := &v1alpha1.TcxProgram{ObjectMeta: metav1.ObjectMeta{Name: name}}
	o.Spec.BpfFunctionName, o.Spec.Direction, o.Spec.Priority = function, "ingress", 50
	o.Spec.InterfaceSelector.Interfaces = &[]string{simulation.Uplink}
	o.Spec.ByteCode.Path = new("/object.o")
	return o
}

// A node that a program cuts off is back within the limit, and says so.
func TestCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := simulation.New(t, simulation.Options{Seed: 1})
		w.AddOperator("a").Start()
		n := w.AddNode("n1")
		n.Agent.Start()
		o := tcx("filter", simulation.CutOff)
		w.Create(o)
		silent := func() bool { reach, _ := n.Network.Reach(); return reach == simulation.Silent }
		w.Await(time.Minute, "cut off", silent)
		took := w.Await(45*time.Second, "back", func() bool { return !silent() })
		w.Await(time.Minute, "reported", func() bool { return says(t, w, o, "ReconcileError") })
		t.Logf("back after %s: %s", took, o.Status.Conditions[0].Message)
	})
}

// A uprobe is attached in a container that starts, and again in the one that replaces it.
func TestContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := simulation.New(t, simulation.Options{Seed: 1})
		w.AddOperator("a").Start()
		n := w.AddNode("n1")
		n.Agent.Start()
		o := &v1alpha1.UprobeProgram{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}
		o.Spec.BpfFunctionName, o.Spec.Target, o.Spec.FunctionName, o.Spec.ByteCode.Path = "count", "/bin/app", "main", new("/object.o")
		o.Spec.Containers = &v1alpha1.ContainerSelector{Namespace: "default", Pods: metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}}
		w.Create(o)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", Labels: map[string]string{"app": "a"}}}
		n.RunPod(pod)
		attachedTo := func() int32 {
			for _, p := range n.Daemon.Programs() {
				for _, link := range p.Links {
					return link.GetUprobeAttachInfo().GetContainerPid()
				}
			}
			return 0
		}
		w.Await(30*time.Second, "attached in the container", func() bool { return attachedTo() != 0 })
		before := attachedTo()
		n.RestartContainer(pod, "main")
		w.Await(30*time.Second, "attached in the next container", func() bool { pid := attachedTo(); return pid != 0 && pid != before })
		n.RemovePod(pod)
		w.Await(2*time.Minute, "detached", func() bool { return attachedTo() == 0 })
	})
}

// A pod starts once its program is loaded. Its volume shows the maps of the program's next load, although the plugin crashed
// in between.
func TestVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := simulation.New(t, simulation.Options{Seed: 1})
		w.AddOperator("a").Start()
		n := w.AddNode("n1")
		n.Agent.Start()
		n.Plugin.Start()
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "reader"}}
		pod.Spec.Volumes = []corev1.Volume{{Name: "maps", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{
			Driver: v1alpha1.CSIDriverName, VolumeAttributes: map[string]string{v1alpha1.VolumeAttributeProgram: "counter", v1alpha1.VolumeAttributeMaps: "counter"},
		}}}}
		n.RunPod(pod)
		w.Pass(time.Minute)
		if volumes := n.Volumes(); len(volumes) != 0 {
			t.Fatalf("without a program, there is %+v", volumes)
		}
		o := tracepoint("counter")
		w.Create(o)
		shown := func() ebpf.MapID {
			for _, v := range n.Volumes() {
				return v.Maps[0].ID
			}
			return 0
		}
		w.Await(3*time.Minute, "mounted", func() bool { return shown() != 0 })
		before := shown()
		w.OnEvent(simulation.Nth(1, simulation.Match{Actor: n.Plugin.Name, Resource: simulation.ResourceMounts}, w.Crash(10*time.Second)))
		if err := w.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatal(err)
		}
		o.Spec.BpfFunctionName = "count_better"
		if err := w.Client.Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		w.Await(3*time.Minute, "the next maps", func() bool { return shown() != before })
		n.RemovePod(pod)
		w.Await(time.Minute, "unmounted", func() bool { return len(n.Volumes()) == 0 })
	})
}

// A rollout halts at the first node that fails, and stays halted while the operator restarts. The others keep what they run.
func TestRolloutHalts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := simulation.New(t, simulation.Options{Seed: 1})
		operator := w.AddOperator("a")
		operator.Start()
		for i := range 3 {
			n := w.AddNode(fmt.Sprint("n", i))
			n.Agent.Start()
			n.Inspector.Start()
		}
		w.Create(&v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "staged"}, Spec: v1alpha1.RolloutPolicySpec{
			Steps:     []v1alpha1.RolloutStep{{Nodes: intstr.FromInt32(1), Pause: &metav1.Duration{Duration: 10 * time.Second}}},
			TimeLimit: metav1.Duration{Duration: time.Minute}, OnFailure: "halt",
		}})
		w.Pass(10 * time.Minute)
		o := tracepoint("counter")
		w.Create(o)
		state := func() string {
			if err := w.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil || o.Status.Rollout == nil {
				return ""
			}
			return string(o.Status.Rollout.State)
		}
		w.Await(10*time.Minute, "complete", func() bool { return state() == "Complete" })
		w.OnEvent(simulation.Each(simulation.Match{Resource: simulation.ResourceDaemon, Verb: "Load"}, func(context.Context, simulation.Event) error {
			return status.Error(codes.Aborted, "the verifier rejected it")
		}))
		o.Spec.BpfFunctionName = "bad"
		if err := w.Client.Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		w.Await(10*time.Minute, "halted", func() bool { return state() == "Halted" })
		for range 3 {
			operator.Crash()
			operator.Start()
			w.Pass(2 * time.Minute)
			if is := state(); is != "Halted" {
				t.Fatalf("after a restart of the operator, the rollout is %s: %s", is, o.Status.Rollout.Message)
			}
		}
		w.Await(time.Minute, "two nodes keep the previous revision", func() bool {
			count := 0
			for _, n := range w.Nodes() {
				for _, p := range n.Daemon.Programs() {
					if p.Function == "count" && len(p.Links) == 1 {
						count++
					}
				}
			}
			return count >= 2
		})
	})
}

// After a reboot, a node runs what it ran before, in pods, too.
func TestReboot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := simulation.New(t, simulation.Options{Seed: 1})
		w.AddOperator("a").Start()
		n := w.AddNode("n1")
		n.Agent.Start()
		n.Plugin.Start()
		n.Inspector.Start()
		w.Create(tcx("filter", "pass"))
		n.RunPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}})
		links := func() (count int) {
			for _, p := range n.Daemon.Programs() {
				count += len(p.Links)
			}
			return count
		}
		w.Await(time.Minute, "attached", func() bool { return links() == 1 })
		w.Pass(time.Minute)
		n.Reboot(5 * time.Minute)
		if left := links(); left != 0 {
			t.Errorf("the rebooting node has %d links", left)
		}
		node := &corev1.Node{}
		w.Await(2*time.Minute, "known to be away", func() bool {
			return w.Client.Get(t.Context(), client.ObjectKey{Name: "n1"}, node) == nil && len(node.Spec.Taints) == 1
		})
		took := w.Await(6*time.Minute, "attached again", func() bool { return links() == 1 })
		t.Logf("attached %s after the node was found to be away", took)
		found := &v1alpha1.BpfNode{}
		w.Await(time.Minute, "inspected", func() bool {
			return w.Client.Get(t.Context(), client.ObjectKey{Name: "n1"}, found) == nil && found.Status.BootID == "n1-boot-1" && found.Status.LinkCount == 1
		})
	})
}

// A registry that drips delays only the objects with its image.
func TestSlowRegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := simulation.New(t, simulation.Options{Seed: 1, Alone: true})
		w.AddOperator("a").Start()
		n := w.AddNode("n1")
		n.Agent.Start()
		release := w.OnEvent(simulation.Each(simulation.Match{Resource: simulation.ResourceRegistry, Name: "slow.example/counter:v1"}, simulation.Hang))
		slow, other := tracepoint("slow"), tracepoint("other")
		slow.Spec.ByteCode = v1alpha1.BytecodeSelector{Image: &v1alpha1.BytecodeImage{Url: "slow.example/counter:v1"}}
		other.Spec.ByteCode = v1alpha1.BytecodeSelector{Image: &v1alpha1.BytecodeImage{Url: "fast.example/counter:v1"}}
		w.Create(slow)
		w.Create(other)
		w.Await(time.Minute, "the other is attached", func() bool { return says(t, w, other, "ReconcileSuccess") })
		w.Pass(10 * time.Minute)
		if says(t, w, slow, "ReconcileSuccess") {
			t.Error("what can't be read is attached")
		}
		release()
		w.Await(10*time.Minute, "the slow one is attached", func() bool { return says(t, w, slow, "ReconcileSuccess") })
	})
}

// An API server that is away for half an hour, in each way, leaves everything as it was, and is caught up with after that.
func TestServerAway(t *testing.T) {
	for _, reach := range []simulation.Reach{simulation.Silent, simulation.Refusing} {
		synctest.Test(t, func(t *testing.T) {
			w := simulation.New(t, simulation.Options{Seed: 1})
			w.AddOperator("a").Start()
			n := w.AddNode("n1")
			n.Agent.Start()
			first, second := tcx("first", "pass"), tcx("second", "pass")
			w.Create(first)
			w.Await(time.Minute, "attached", func() bool { return says(t, w, first, "ReconcileSuccess: Attached on 1 of 1") })
			w.Pass(time.Minute) // until it is confirmed
			w.Network.Set(reach)
			w.Create(second)
			w.Pass(30 * time.Minute)
			if programs := n.Daemon.Programs(); len(programs) != 1 || len(programs[0].Links) != 1 {
				t.Errorf("without the API server, there are %+v", programs)
			}
			w.Network.Set(simulation.Up)
			w.Await(5*time.Minute, "the second is attached", func() bool { return says(t, w, second, "ReconcileSuccess: Attached on 1 of 1") })
		})
	}
}

// TestIdle measures how many hours of a cluster in which nothing happens pass in a second.
func TestIdle(t *testing.T) {
	for name, o := range map[string]simulation.Options{"elected": {}, "alone": {Alone: true}} {
		t.Run(name, func(t *testing.T) {
			const idle = 6 * time.Hour
			start := time.Now()
			synctest.Test(t, func(t *testing.T) {
				w := simulation.New(t, o)
				w.AddOperator("a").Start()
				for i := range 3 {
					w.AddNode(fmt.Sprint("n", i)).Agent.Start()
				}
				o := tracepoint("counter")
				w.Create(o)
				w.Pass(idle)
				if !says(t, w, o, "ReconcileSuccess: Attached on 3 of 3") {
					t.Errorf("at rest, it says %+v", o.Status.Conditions)
				}
			})
			t.Logf("%.1f hours a second", idle.Hours()/time.Since(start).Seconds())
		})
	}
}
