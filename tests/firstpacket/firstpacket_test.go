// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package firstpacket

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// packets is how many each pod sends.
const packets = 16

// missing returns which numbers of a pod's packets the map lacks.
func missing(tb testing.TB, numbers *ebpf.Map, pod int) []uint32 {
	tb.Helper()
	var lacks []uint32
	for i := range packets {
		number := uint32(pod*packets + i)
		var count uint64
		must.Succeed(tb, numbers.Lookup(number, &count))
		if count != 1 {
			lacks = append(lacks, number)
		}
	}
	return lacks
}

// send has an init container of a new pod send its packets, and returns how long the start of the sandbox took.
func (n *node) send(pod *pod, number int) (time.Duration, error) {
	began := time.Now()
	if err := pod.run(n.t.Context()); err != nil {
		return 0, err
	}
	took := time.Since(began)
	id, err := pod.start(n.t.Context(), "init", "send", fmt.Sprint(number*packets), fmt.Sprint(packets))
	if err != nil {
		return took, err
	}
	return took, pod.ended(n.t.Context(), id)
}

// webs returns new pods that the programs of the tests select. With inCluster, the API server has them.
func (n *node) webs(count int, inCluster bool) []*pod {
	n.t.Helper()
	pods := make([]*pod, count)
	labels := map[string]string{"app": "web"}
	for number := range pods {
		name := fmt.Sprint("web-", number)
		o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), Labels: labels}}
		if inCluster {
			o.UID = ""
			o.Spec = corev1.PodSpec{NodeName: nodeName, Containers: []corev1.Container{{Name: "app", Image: image}}}
			n.create(o)
		}
		pods[number] = n.newPod("default", name, string(o.UID), labels)
	}
	return pods
}

// startAll starts pods with numbers from first on, several at a time as the kubelet does, and returns those whose packets
// weren't all counted, and how long the starts of the sandboxes took.
func (n *node) startAll(object string, pods []*pod, first, count int) (late []int, took []time.Duration) {
	n.t.Helper()
	const atATime = 8
	var mu sync.Mutex
	group, _ := errgroup.WithContext(n.t.Context())
	group.SetLimit(atATime)
	for number := first; number < first+count; number++ {
		group.Go(func() error {
			began, err := n.send(pods[number], number)
			mu.Lock()
			defer mu.Unlock()
			took = append(took, began)
			return err
		})
	}
	must.Succeed(n.t, group.Wait())
	numbers := n.mapOf(object, "numbers")
	for number := first; number < first+count; number++ {
		if len(missing(n.t, numbers, number)) > 0 {
			late = append(late, number)
		}
	}
	return late, took
}

// Packets that an init container sends first thing are counted, from the first one on. This needs no API server.
func TestFirstPacket(t *testing.T) {
	n := startNode(t)
	n.create(counter(t, "first", selector("web", "")))
	n.startAgent() // it finds kinds that have objects
	n.loaded("first")
	pods := n.webs(10, false)
	if late, _ := n.startAll("first", pods, 0, 5); len(late) > 0 {
		t.Errorf("the first packets of pods %d weren't counted", late)
	}
	n.server.away()
	if late, _ := n.startAll("first", pods, 5, 5); len(late) > 0 {
		t.Errorf("without the API server, the first packets of pods %d weren't counted", late)
	}
	n.server.back(t)
	within(t, "the links to be reported", func(ctx context.Context) error {
		p, err := n.report(ctx, "first")
		if err == nil && len(p.Status.Links) != 10 {
			err = fmt.Errorf("%d links: %+v", len(p.Status.Links), p.Status)
		}
		return err
	})
}

// A function that a process calls first thing in main is counted.
func TestFirstCall(t *testing.T) {
	n := startNode(t)
	object, err := filepath.Abs("../../bin/bytecode/go-uprobe-counter.o")
	must.Succeed(t, err)
	probe := &v1alpha1.UprobeProgram{ObjectMeta: metav1.ObjectMeta{Name: "calls"}}
	probe.Spec.BpfFunctionName, probe.Spec.Target, probe.Spec.FunctionName = "uprobe_counter", "/first-packet", "main.first"
	probe.Spec.ByteCode.Path, probe.Spec.Containers = &object, selector("web", "")
	n.create(probe)
	n.startAgent()
	n.loaded("calls")
	web := n.webs(1, false)[0]
	must.Succeed(t, web.run(t.Context()))
	id, err := web.start(t.Context(), "init", "call")
	must.Succeed(t, err)
	must.Succeed(t, web.ended(t.Context(), id))
	var calls []uint64 // by CPU
	must.Succeed(t, n.mapOf("calls", "uprobe_stats_ma").Lookup(uint32(0), &calls))
	sum := uint64(0)
	for _, c := range calls {
		sum += c
	}
	if sum != 1 {
		t.Errorf("%d calls were counted, not 1", sum)
	}
}

// Of 200 pods that start at about the same time, only those that start while the agent is dead lack packets. All of them
// start, and have the program in the end.
func TestBurst(t *testing.T) {
	n := startNode(t)
	n.create(counter(t, "burst", selector("web", "")))
	n.startAgent()
	n.loaded("burst")
	const part = 50
	pods := n.webs(4*part, true)
	late, before := n.startAll("burst", pods, 0, part)
	if len(late) > 0 {
		t.Errorf("the first packets of pods %d weren't counted", late)
	}
	killed := make(chan struct{})
	time.AfterFunc(time.Second, func() { // in the middle of a start
		defer close(killed)
		_ = n.agent.Process.Kill() // an error means that it has ended, and the pods would be late too early
	})
	late, _ = n.startAll("burst", pods, part, part)
	<-killed
	t.Logf("%d of %d pods started while the agent was killed, and before it was back", len(late), part)
	n.startAgent()
	n.loaded("burst")
	n.server.away()
	again, after := n.startAll("burst", pods, 2*part, 2*part)
	if len(again) > 0 {
		t.Errorf("the first packets of pods %d weren't counted", again)
	}
	slices.Sort(before)
	slices.Sort(after)
	t.Logf("starts of sandboxes took %s (median) and %s (longest), and without the API server %s and %s",
		before[part/2], before[part-1], after[part], after[2*part-1])
	n.server.back(t)
	within(t, "all pods to have the program", func(ctx context.Context) error {
		p, err := n.report(ctx, "burst")
		if err == nil && len(p.Status.Links) != 4*part {
			err = fmt.Errorf("%d links", len(p.Status.Links))
		}
		return err
	})
}

// While the daemon hangs, a pod starts late and without the program, and with failurePolicy: Fail not at all. The object says
// why, and the next pods don't wait.
func TestDaemonHangs(t *testing.T) {
	n := startNode(t)
	n.create(counter(t, "ignored", selector("web", "")))
	n.create(counter(t, "required", selector("strict", v1alpha1.StartFail)))
	n.startAgent()
	n.loaded("ignored")
	n.loaded("required")
	pods := n.webs(3, true)
	strict := n.newPod("default", "strict", "uid-strict", map[string]string{"app": "strict"})
	must.Succeed(t, syscall.Kill(n.PID, syscall.SIGSTOP))
	var took []time.Duration
	for _, pod := range pods {
		began := time.Now()
		must.Succeed(t, pod.run(t.Context()))
		took = append(took, time.Since(began))
	}
	refused := strict.run(t.Context())
	must.Succeed(t, syscall.Kill(n.PID, syscall.SIGCONT))
	t.Logf("the starts took %s", took)
	const limit = 1500 * time.Millisecond // of the agent
	if took[0] < limit || took[1] > limit || took[2] > limit {
		t.Errorf("the starts took %s", took)
	}
	if refused == nil || !strings.Contains(refused.Error(), "program first_packets of TcxProgram/required isn't attached: this took longer than 1.5s") {
		t.Errorf("the start without a required program: %v", refused)
	}
	within(t, "the pods that run to have the program", func(ctx context.Context) error {
		p, err := n.report(ctx, "ignored")
		if err != nil {
			return err
		}
		said := p.Status.Conditions[0].Message
		if len(p.Status.Links) != len(pods) || !strings.Contains(said, "pod default/web-0 started before the program was attached: this took longer than 1.5s") {
			return fmt.Errorf("%d links: %s", len(p.Status.Links), said)
		}
		return nil
	})
	for object, reason := range map[string]string{"ignored": "StartedBeforeAttached", "required": "StartRefused"} {
		within(t, "an Event about "+object, func(ctx context.Context) error {
			var events eventsv1.EventList
			err := n.client.List(ctx, &events)
			if err == nil && !slices.ContainsFunc(events.Items, func(e eventsv1.Event) bool { return e.Regarding.Name == object && e.Reason == reason }) {
				err = fmt.Errorf("%d Events, and none with reason %s", len(events.Items), reason)
			}
			return err
		})
	}
	// As the kubelet tries again. The runtime might still be removing the first sandbox.
	strict.config.Metadata.Attempt++
	if took, err := n.send(strict, 3); err != nil || len(missing(t, n.mapOf("required", "numbers"), 3)) > 0 {
		t.Errorf("the next attempt after %s: %v; packets that weren't counted: %d", took, err, missing(t, n.mapOf("required", "numbers"), 3))
	}
}
