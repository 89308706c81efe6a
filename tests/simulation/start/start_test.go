// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package start tests what the operator does when it starts.
package start

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/hints"
	"github.com/bpfman/bpfman-operator/internal/rollout"
	"github.com/bpfman/bpfman-operator/operator"
	"github.com/bpfman/bpfman-operator/operator/deploy"
	"github.com/bpfman/bpfman-operator/operator/nodes"
	"github.com/bpfman/bpfman-operator/operator/takeover"
	"github.com/bpfman/bpfman-operator/tests/must"
	"github.com/bpfman/bpfman-operator/tests/simulation/apiserver"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	utilruntime.ErrorHandlers = nil //nolint:reassign // they delay errors by the process's real time
	if err := v1alpha1.Install(scheme.Scheme); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

const namespace, programs = "bpfman", "tracepointprograms.bpfman.io"

// cluster is an API server whose operator is watched.
type cluster struct {
	*apiserver.Server
	t *testing.T

	mu sync.Mutex
	// held is the resource that can't be listed until released is closed.
	held     string
	released chan struct{}
	// forbidden is a resource without the permission to read it.
	forbidden string
	writes    []string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	s, err := apiserver.New()
	must.Succeed(t, err)
	return &cluster{Server: s, t: t}
}

func (c *cluster) put(o runtime.Object) {
	c.t.Helper()
	must.Succeed(c.t, c.Put(o))
}

// get reads an object into one of its type.
func (c *cluster) get(resource, namespace, name string, into any) {
	c.t.Helper()
	o := c.Get(resource, namespace, name)
	if o == nil {
		c.t.Fatalf("%s %s doesn't exist", resource, name)
	}
	must.Succeed(c.t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, into))
}

// hold delays lists of a resource until release is called.
func (c *cluster) hold(resource string) (release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	released := make(chan struct{})
	c.held, c.released = resource, released
	return sync.OnceFunc(func() { close(released) })
}

// written returns the writes since the last call, except for Events and the objects that the operator deploys, which
// it applies after each start.
func (c *cluster) written() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	writes := slices.DeleteFunc(c.writes, func(w string) bool {
		return strings.Contains(w, "/events") || strings.Contains(w, "/daemonsets/") || strings.Contains(w, "/csidrivers/")
	})
	c.writes = nil
	return writes
}

// intercept implements [apiserver.Interceptor].
func (c *cluster) intercept(q *apiserver.Request) error {
	if q.Phase != apiserver.Arrives {
		return nil
	}
	c.mu.Lock()
	held, released, forbidden := c.held, c.released, c.forbidden
	switch q.Verb {
	case "get", "list", "watch":
	default:
		c.writes = append(c.writes, q.Method+" "+q.Path)
	}
	c.mu.Unlock()
	switch {
	case q.Method == http.MethodGet && q.Resource == forbidden:
		return apierrors.NewForbidden(schema.GroupResource{Group: q.APIGroup, Resource: q.Resource}, q.Name, nil)
	case q.Resource != held || q.Verb != "list" && q.Verb != "watch":
		return nil
	}
	select {
	case <-released:
		return nil
	case <-q.Context().Done():
		return q.Context().Err()
	}
}

// run runs an operator until the returned function is called.
func (c *cluster) run() (stop func()) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	transport := c.Transport("operator", context.Background(), c.intercept)
	mgr, err := operator.New(&rest.Config{Host: "http://api", Transport: transport, QPS: -1}, operator.Options{Namespace: namespace, MetricsAddr: "0", HealthAddr: "0"})
	must.Succeed(c.t, err)
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	return func() {
		synctest.Wait() // controller-runtime's watches leave a goroutine if they end while they pass on an event
		cancel()
		if err := <-ended; err != nil {
			c.t.Errorf("the operator ended: %v", err)
		}
	}
}

// halted fills an API server with a cluster of one node where a rollout is halted.
func halted(s *cluster) {
	s.t.Helper()
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue}
	s.put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	s.put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: deploy.ConfigMapName}})
	s.put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{ready}}})
	s.put(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "agent", Labels: deploy.PodLabels()},
		Spec:       corev1.PodSpec{NodeName: "node"},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: deploy.InspectorContainer, Ready: true}},
		},
	})
	s.put(&appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: deploy.DaemonSetName},
		Spec:       appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: deploy.InspectorContainer}}}}},
	})
	s.put(&v1alpha1.BpfNode{ObjectMeta: metav1.ObjectMeta{Name: "node"}})
	s.put(&v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "staged", Generation: 1}, Spec: v1alpha1.RolloutPolicySpec{
		Steps: []v1alpha1.RolloutStep{{Nodes: intstr.FromInt32(1)}}, TimeLimit: metav1.Duration{Duration: time.Minute},
	}})
	s.put(&v1alpha1.BytecodePolicy{ObjectMeta: metav1.ObjectMeta{Name: "signed", Generation: 1}})

	now := metav1.NewTime(time.Now().Add(-time.Hour))
	program := &v1alpha1.TracepointProgram{ObjectMeta: metav1.ObjectMeta{Name: "counter", UID: "counter", Generation: 2}}
	program.Spec.BpfFunctionName, program.Spec.Names = "count", []string{"syscalls/sys_enter_kill"}
	revision, err := rollout.RevisionOf(program)
	if err != nil {
		s.t.Fatal(err)
	}
	former := revision
	former.Metadata.Generation = 1
	stored, err := json.Marshal(former)
	if err != nil {
		s.t.Fatal(err)
	}
	until := int64(1) << 40
	program.Status.Rollout = &v1alpha1.RolloutStatus{
		Policy: "staged", State: v1alpha1.RolloutHalted, Hash: revision.Hash(), Revision: 2, Started: &now, StepStarted: &now, Step: 1, Nodes: 1, Until: &until,
		Previous: &v1alpha1.RolloutRevision{Revision: 1, Object: runtime.RawExtension{Raw: stored}}, Message: "1 of 1 nodes with revision 2 aren't healthy",
	}
	s.put(program)
	s.put(&v1alpha1.BpfProgram{
		ObjectMeta: metav1.ObjectMeta{
			Name: "counter-node", Labels: map[string]string{v1alpha1.LabelHostname: "node", v1alpha1.LabelOwnerKind: "TracepointProgram"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "TracepointProgram", Name: "counter", UID: "counter", Controller: new(true)}},
		},
		Status: v1alpha1.BpfProgramStatus{
			Node: "node", OwnerGeneration: 2, Conditions: []metav1.Condition{{Type: string(v1alpha1.BpfProgCondNotLoaded), Message: "refused"}},
			Bytecode: &v1alpha1.BpfProgramBytecode{Policies: []v1alpha1.BpfProgramPolicy{{Name: "signed", Verdict: v1alpha1.VerdictDenied}}},
		},
	})
}

// A restarted operator decides nothing from what it hasn't listed yet: in a cluster where nothing changes, it writes
// nothing, no matter which list is late.
func TestRestartWithLateLists(t *testing.T) {
	const long = 5 * time.Minute
	synctest.Test(t, func(t *testing.T) {
		s := newCluster(t)
		halted(s)
		stop := s.run()
		time.Sleep(long) //nolint:forbidigo // in the bubble, the clock isn't real
		stop()
		s.written()
		checkHalted(s)
		var listed []string
		for _, r := range s.Resources() {
			listed = append(listed, r.Resource)
		}
		for _, late := range append([]string{"none"}, listed...) {
			release := s.hold(late)
			stop := s.run()
			time.Sleep(long) //nolint:forbidigo // in the bubble, the clock isn't real
			if writes := s.written(); len(writes) > 0 {
				t.Errorf("while %s aren't listed, it writes %q", late, writes)
			}
			release()
			time.Sleep(long) //nolint:forbidigo // in the bubble, the clock isn't real
			if writes := s.written(); len(writes) > 0 {
				t.Errorf("after %s are listed, it writes %q", late, writes)
			}
			stop()
		}
		checkHalted(s)
	})
}

// Without the permission to read Events, everything else works.
func TestEventsThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCluster(t)
		s.forbidden = "events"
		halted(s)
		s.put(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "failing", Labels: map[string]string{"name": deploy.DaemonSetName, takeover.PartOfLabel: "bpfman"}},
			Spec:       corev1.PodSpec{NodeName: "node"},
			Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
				Name: deploy.AgentContainer, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}},
			}}},
		})
		defer s.run()()
		time.Sleep(time.Minute) //nolint:forbidigo // in the bubble, the clock isn't real
		var config corev1.ConfigMap
		s.get("configmaps", namespace, deploy.ConfigMapName, &config)
		if problems := config.Annotations[nodes.Annotation]; !strings.Contains(problems, "ErrImagePull") {
			t.Errorf("the problems are %q", problems)
		}
		s.mu.Lock()
		s.forbidden = ""
		s.mu.Unlock()
		time.Sleep(time.Minute) //nolint:forbidigo // controller-runtime leaks goroutines for what is never listed
	})
}

// A policy that can't be decoded is held against what it could match, and says so. It doesn't hide others.
func TestPoliciesThatCannotBeDecoded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCluster(t)
		halted(s)
		s.put(&v1alpha1.TracepointProgram{ObjectMeta: metav1.ObjectMeta{Name: "new", Generation: 1}})
		rollouts, policies := v1alpha1.RolloutPolicyKind.GroupVersionKind(), v1alpha1.PolicyKind.GroupVersionKind()
		s.put(damaged(rollouts, map[string]any{"steps": []any{map[string]any{"nodes": int64(9999999999)}}}))
		s.put(damaged(policies, map[string]any{"match": map[string]any{"namespaces": "none"}}))
		defer s.run()()
		time.Sleep(time.Minute) //nolint:forbidigo // in the bubble, the clock isn't real
		var status struct {
			Status struct {
				Conditions []metav1.Condition      `json:"conditions"`
				Rollout    *v1alpha1.RolloutStatus `json:"rollout"`
			} `json:"status"`
		}
		for _, resource := range []string{"rolloutpolicies.bpfman.io", "bytecodepolicies.bpfman.io"} {
			s.get(resource, "", "damaged", &status)
			if c := meta.FindStatusCondition(status.Status.Conditions, string(v1alpha1.Ready)); c == nil || c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "the policy can't be read") {
				t.Errorf("the %s say %+v", resource, status.Status.Conditions)
			}
		}
		s.get(programs, "", "counter", &status)
		if r := status.Status.Rollout; r == nil || r.State != v1alpha1.RolloutHalted {
			t.Errorf("the failed rollout is %+v", r)
		}
		s.get(programs, "", "new", &status)
		if r := status.Status.Rollout; r == nil || r.State != v1alpha1.RolloutContested || !strings.Contains(r.Message, "the RolloutPolicy damaged can't be read") {
			t.Errorf("the rollout of another object is %+v", r)
		}
	})
}

func damaged(gvk schema.GroupVersionKind, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetGroupVersionKind(gvk)
	o.SetName("damaged")
	o.SetGeneration(1)
	return o
}

// checkHalted checks that the cluster is as halted made it, and summarized.
func checkHalted(s *cluster) {
	s.t.Helper()
	program, policy, published := &v1alpha1.TracepointProgram{}, &v1alpha1.BytecodePolicy{}, &corev1.ConfigMap{}
	s.get(programs, "", "counter", program)
	s.get("bytecodepolicies.bpfman.io", "", "signed", policy)
	s.get("configmaps", namespace, hints.ConfigMapName, published)
	r := program.Status.Rollout
	if r == nil || r.State != v1alpha1.RolloutHalted || program.Status.Nodes == nil || program.Status.Nodes.Failed != 1 {
		s.t.Errorf("the status is %+v, and the rollout %+v", program.Status, r)
	}
	if policy.Status.Denied != 1 {
		s.t.Errorf("the policy denies %d programs, want 1", policy.Status.Denied)
	}
	if used := hints.Parse(published.Data).Kinds; !used["TracepointProgram"] || !used["RolloutPolicy"] {
		s.t.Errorf("the hints are %v", published.Data)
	}
	if s.Get("bpfnodes.bpfman.io", "", "node") == nil {
		s.t.Error("the BpfNode was deleted")
	}
}
