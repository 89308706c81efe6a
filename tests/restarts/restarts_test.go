// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package restarts

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/bpfman/bpfman-operator/tests/node"
)

func TestUnexpected(t *testing.T) {
	status := func(agent, csi int32) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{Name: "bpfman-agent", RestartCount: agent}, {
			Name: "bpfman-csi", RestartCount: csi, LastTerminationState: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137},
			},
		}}
	}
	l := NewLog(nil, "bpfman")
	for _, check := range []struct {
		name       string
		expect     int // restarts of the agent
		delay      bool
		agent, csi int32
		uid        types.UID
		want       string
	}{
		{name: "restarts before the test", agent: 3, csi: 1},
		{name: "killed", expect: 1, agent: 4, csi: 1},
		{name: "killed, and reported later", expect: 1, agent: 4, csi: 1},
		{name: "reported", agent: 5, csi: 1},
		{name: "killed, and the runtime too", expect: 1, agent: 5, csi: 1},
		{name: "not reported yet", delay: true, agent: 5, csi: 1},
		{name: "reported late", agent: 6, csi: 1},
		{name: "it ended alone", agent: 7, csi: 1, want: "container bpfman-agent restarted 1 times, and the test restarted it 0 times"},
		{name: "another container", expect: 1, agent: 8, csi: 2, want: "bpfman-csi restarted 1 times, and the test restarted it 0 times; the last in pod a: OOMKilled, exit code 137"},
		{name: "twice", expect: 1, agent: 10, csi: 2, want: "bpfman-agent restarted 2 times, and the test restarted it 1 times"},
		{name: "a new pod", agent: 0, csi: 0, uid: "2"},
		{name: "a new pod that crashed", agent: 0, csi: 1, uid: "3", want: "bpfman-csi restarted 1 times"},
		{name: "as often as it wants", expect: Unlimited, agent: 9, csi: 1, uid: "3"},
	} {
		l.pods = fake.NewClientBuilder().WithObjects(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "bpfman", Name: "a", UID: check.uid},
			Status:     corev1.PodStatus{ContainerStatuses: status(check.agent, check.csi)},
		}).Build()
		if check.expect > 0 {
			l.Expect(node.Agent, check.expect)
		}
		if check.delay {
			l.ExpectDelay()
		}
		got, err := l.Unexpected(t.Context())
		if text := strings.Join(got, "\n"); err != nil || !strings.Contains(text, check.want) || (text == "") != (check.want == "") {
			t.Errorf("%s: got %q, %v, want %q", check.name, got, err, check.want)
		}
	}
}

// A container that the runtime couldn't start counts unless the test expects that.
func TestStartErrors(t *testing.T) {
	l := NewLog(nil, "bpfman")
	for restarted, expect := range []bool{false, false, true, false, false} {
		l.pods = fake.NewClientBuilder().WithObjects(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "bpfman", Name: "a", UID: "1"},
			Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
				Name: "bpfman-agent", RestartCount: int32(restarted),
				LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "StartError", ExitCode: 128}},
			}}},
		}).Build()
		if expect {
			l.ExpectStartErrors()
		}
		got, err := l.Unexpected(t.Context())
		// The first check finds the state before the test, and a restart can be reported one check late.
		if want := restarted == 1 || restarted == 4; err != nil || (len(got) > 0) != want {
			t.Errorf("check %d: %q, %v", restarted, got, err)
		}
	}
}
