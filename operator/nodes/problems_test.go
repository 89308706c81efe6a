// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package nodes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/bpfman/bpfman-operator/operator/deploy"
	"github.com/bpfman/bpfman-operator/operator/pace"
	"github.com/bpfman/bpfman-operator/operator/takeover"
)

func mounted(message string) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name: "mount-bpffs", Image: "agent:1", Ready: true,
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: message}},
	}
}

func pod(node string, init corev1.ContainerStatus, containers ...corev1.ContainerStatus) corev1.Pod {
	return corev1.Pod{
		Spec:   corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{init}, ContainerStatuses: containers},
	}
}

func waiting(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

func ended(code int32, message string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message}}
}

func TestProblems(t *testing.T) {
	ours := mounted("bpfman-agent v1")
	deleted := pod("a", mounted("bpfman-agent v0"))
	deleted.DeletionTimestamp = new(metav1.Now())
	crashes := corev1.ContainerStatus{
		Name: "bpfman-csi", Image: "csi:1", RestartCount: 4,
		State:                waiting("CrashLoopBackOff", "back-off 40s"),
		LastTerminationState: ended(2, "flag provided but not defined: -daemon-socket\nUsage of /bpfman-csi:\n  -x"),
	}
	runsAgain := crashes
	runsAgain.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	recovered := runsAgain
	recovered.Ready = true
	once := runsAgain
	once.RestartCount = 1

	for name, c := range map[string]struct {
		pods []corev1.Pod
		want []string
	}{
		"none":      {nil, nil},
		"well":      {[]corev1.Pod{pod("a", ours, corev1.ContainerStatus{Name: "bpfman", Ready: true})}, nil},
		"begins":    {[]corev1.Pod{pod("a", corev1.ContainerStatus{Name: "mount-bpffs", State: waiting("PodInitializing", "")})}, nil},
		"killed":    {[]corev1.Pod{pod("a", ours, once)}, nil},
		"recovered": {[]corev1.Pod{pod("a", ours, recovered)}, nil},
		"goes":      {[]corev1.Pod{deleted}, nil},
		"crashes": {[]corev1.Pod{pod("b", ours, crashes), pod("a", ours, runsAgain)}, []string{
			"ComponentFails: container bpfman-csi with image csi:1 fails: exit code 2: flag provided but not defined: -daemon-socket Usage of /bpfman-csi: -x (a, b)",
		}},
		"another image": {[]corev1.Pod{pod("a", corev1.ContainerStatus{
			Name: "mount-bpffs", Image: "quay.io/bpfman/bpfman-agent:latest", RestartCount: 2, State: waiting("CrashLoopBackOff", ""),
			LastTerminationState: ended(2, "flag provided but not defined: -mount-bpffs"),
		})}, []string{"ComponentFails: container mount-bpffs with image quay.io/bpfman/bpfman-agent:latest fails: exit code 2: flag provided but not defined: -mount-bpffs (a)"}},
		"probed": {[]corev1.Pod{pod("a", ours, corev1.ContainerStatus{Name: "bpfman-agent", Image: "agent:1", RestartCount: 2, LastTerminationState: ended(0, "")})}, []string{
			"ComponentFails: container bpfman-agent with image agent:1 fails: exit code 0: the kubelet ends it, because it doesn't answer its liveness probe (a)",
		}},
		"no image": {[]corev1.Pod{pod("a", corev1.ContainerStatus{Name: "mount-bpffs", Image: "agent:2", State: waiting("ImagePullBackOff", "not found")})}, []string{
			"ComponentFails: container mount-bpffs with image agent:2 fails: ImagePullBackOff: not found (a)",
		}},
		"another version": {[]corev1.Pod{pod("a", mounted("bpfman-agent v0")), pod("b", ours), pod("c", mounted(""))}, []string{
			"AgentVersion: image agent:1 contains an agent of version unknown, but the operator has version v1 (c)",
			"AgentVersion: image agent:1 contains an agent of version v0, but the operator has version v1 (a)",
		}},
	} {
		if got := (Observed{Pods: c.pods, Version: "v1"}).Problems(); !slices.Equal(got, c.want) {
			t.Errorf("%s:\ngot  %q\nwant %q", name, got, c.want)
		}
	}
}

// A component that can't listen names the key with its port, and the others that aren't ready name theirs.
func TestPortsInUse(t *testing.T) {
	config, _, err := deploy.ParseConfig(map[string]string{
		deploy.KeyDaemonImage: "b", deploy.KeyAgentImage: "a", deploy.KeyCSIImage: "c", deploy.KeyInspectorImage: "i", deploy.KeyAgentHealthAddr: ":9175",
	})
	if err != nil {
		t.Fatal(err)
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	agent := corev1.ContainerStatus{Name: "bpfman-agent", Image: "a", RestartCount: 1, State: running, LastTerminationState: ended(1, "listen tcp :9175: bind: address already in use")}
	csi := corev1.ContainerStatus{Name: "bpfman-csi", Image: "c", State: running}
	node := pod("n", mounted("bpfman-agent v1"), agent, csi, corev1.ContainerStatus{Name: "bpfman", Image: "b", State: running})
	node.UID = "1"
	o := Observed{Pods: []corev1.Pod{node}, Version: "v1", Servers: config.Servers()}
	inUse := "PortTaken: container bpfman-agent with image a can't use port 9175 of the node (bpfman.agent.healthprobe.addr): other software does (n)"
	if got := o.Problems(); !slices.Equal(got, []string{inUse}) {
		t.Errorf("%q", got)
	}
	o.Unready = map[Container]bool{{"1", "bpfman-csi"}: true, {"1", "bpfman-agent"}: true, {"1", "bpfman"}: true}
	unready := "ComponentNotReady: container bpfman-csi with image c runs, but isn't ready at port 8173 (bpfman.csi.metric.addr) (n)"
	if got := o.Problems(); !slices.Equal(got, []string{unready, inUse}) {
		t.Errorf("%q", got)
	}
}

// Why the DaemonSet lacks pods is only said while it does, and in the same words for each attempt.
func TestRefusedPods(t *testing.T) {
	daemonSet := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{UID: "1"}, Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 3, CurrentNumberScheduled: 2}}
	at := func(second int64, uid types.UID, reason, message string) corev1.Event {
		return corev1.Event{InvolvedObject: corev1.ObjectReference{UID: uid}, Reason: reason, Message: message, LastTimestamp: metav1.Unix(second, 0)}
	}
	o := Observed{DaemonSet: daemonSet, Events: []corev1.Event{
		at(1, "1", "FailedCreate", "Error creating: something else"),
		at(3, "1", "FailedCreate", `Error creating: pods "bpfman-daemon-x7k2p" is forbidden: exceeded quota: small`),
		at(4, "1", "SuccessfulCreate", "Created pod: bpfman-daemon-aaaaa"),
		at(5, "2", "FailedCreate", "Error creating: an earlier DaemonSet"),
	}}
	want := []string{`PodsRefused: the API server refuses pods of DaemonSet bpfman-daemon: pods "bpfman-daemon" is forbidden: exceeded quota: small`}
	if got := o.Problems(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	daemonSet.Status.CurrentNumberScheduled = 3
	if got := o.Problems(); len(got) != 0 {
		t.Errorf("with all pods: %q", got)
	}
}

// A container has time to become ready. The pass that finds out that it isn't doesn't wait for an event.
func TestContainersHaveTimeToStart(t *testing.T) {
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	starts := pod("n", mounted("bpfman-agent v1"), corev1.ContainerStatus{Name: "bpfman-csi", State: running})
	starts.UID = "1"
	o := Observed{Pods: []corev1.Pod{starts}}
	r, began := &Reconciler{}, time.Unix(5000, 0)
	for _, c := range []struct {
		after, next time.Duration
		ready       bool
		want        int
	}{
		{0, startLimit, false, 0},
		{time.Minute, startLimit - time.Minute, false, 0},
		{startLimit, 0, false, 1},
		{startLimit + time.Second, 0, true, 0},
		{startLimit + 2*time.Second, startLimit, false, 0},
	} {
		o.Pods[0].Status.ContainerStatuses[0].Ready = c.ready
		if next := r.wait(began.Add(c.after), &o); next != c.next || len(o.Unready) != c.want {
			t.Errorf("after %v: %v in %v", c.after, o.Unready, next)
		}
	}
}

func TestManyNodesAreOneLine(t *testing.T) {
	var pods []corev1.Pod
	for i := range 5000 {
		pods = append(pods, pod(fmt.Sprintf("node-%04d", i), mounted("bpfman-agent v0")))
	}
	got := Observed{Pods: pods, Version: "v1"}.Problems()
	if len(got) != 1 || !strings.HasSuffix(got[0], "(node-0000, node-0001, node-0002 and 4997 more)") {
		t.Errorf("%q", got)
	}
}

// Problems that each have another text, as the errors of agents do, fit into the annotation. The text doesn't depend
// on the order of the pods.
func TestManyProblemsFit(t *testing.T) {
	var pods []corev1.Pod
	for i := range 1000 {
		fails := corev1.ContainerStatus{
			Name: "bpfman-agent", Image: strings.Repeat("i", 1000), RestartCount: restarts,
			LastTerminationState: ended(1, fmt.Sprintf("node %d: %s", i, strings.Repeat("é", 2000))),
		}
		if i%100 != 0 {
			fails.Image = "agent:1"
		}
		pods = append(pods, pod(fmt.Sprintf("node-%04d-%s", i, strings.Repeat("n", 240)), mounted("bpfman-agent v1"), fails))
	}
	got := Observed{Pods: pods, Version: "v1"}.Problems()
	if size := len(strings.Join(got, "\n")); size > 64<<10 || len(got) != maxLines+1 {
		t.Errorf("%d lines of %d bytes", len(got), size)
	}
	if !strings.Contains(got[0], "iii") || !strings.HasPrefix(got[maxLines], "971 more problems (node-") || !strings.HasSuffix(got[maxLines], " and 968 more)") {
		t.Errorf("first %q, last %q", got[0], got[maxLines])
	}
	slices.Reverse(pods)
	if again := (Observed{Pods: pods, Version: "v1"}).Problems(); !slices.Equal(got, again) {
		t.Errorf("in another order: %q", again)
	}
}

// When many nodes fail one after another, the annotation isn't written for each of them.
func TestWritesArePaced(t *testing.T) {
	const nodes = 1000
	clock := testingclock.NewFakePassiveClock(time.Unix(5000, 0))
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "bpfman", Name: "bpfman-config", UID: "1"}}
	objects := []client.Object{configMap}
	for i := range nodes {
		healthy := pod(fmt.Sprintf("node-%d", i), mounted("bpfman-agent v1"))
		healthy.Namespace, healthy.Name = "bpfman", healthy.Spec.NodeName
		healthy.Labels = map[string]string{takeover.PartOfLabel: "bpfman"}
		objects = append(objects, &healthy)
	}
	writes := 0
	c := fake.NewClientBuilder().WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			writes++
			return c.Patch(ctx, object, patch, options...)
		},
	}).Build()
	r := &Reconciler{
		Client: c, Recorder: events.NewFakeRecorder(nodes), ConfigMap: client.ObjectKeyFromObject(configMap), Version: "v1", Clock: clock,
	}
	reconciled := func() time.Duration {
		result, err := r.Reconcile(t.Context(), reconcile.Request{})
		if err != nil {
			t.Fatal(err)
		}
		return result.RequeueAfter
	}
	var wait time.Duration
	for i := range 10 {
		failing := &corev1.Pod{}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(objects[1+i]), failing); err != nil {
			t.Fatal(err)
		}
		failing.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "bpfman-agent", RestartCount: restarts, LastTerminationState: ended(1, failing.Name)}}
		if err := c.Status().Update(t.Context(), failing); err != nil {
			t.Fatal(err)
		}
		wait = reconciled()
	}
	if want := pace.Between(writePace, nodes); writes != 1 || wait != want {
		t.Errorf("%d writes; the next pass is in %v, not %v", writes, wait, want)
	}
	clock.SetTime(clock.Now().Add(wait))
	if wait := reconciled(); writes != 2 || wait != 0 {
		t.Errorf("later %d writes; the next pass is in %v", writes, wait)
	}
	if err := c.Get(t.Context(), r.ConfigMap, configMap); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(configMap.Annotations[Annotation], "\n"); got != 9 {
		t.Errorf("%q", configMap.Annotations[Annotation])
	}
}
