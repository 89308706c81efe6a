// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"testing"

	"gotest.tools/v3/golden"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/cluster"
)

// runningPod returns a pod on a node, with a volume of an object's maps unless that is empty.
func runningPod(namespace, name, node, mounts string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("11111111-1111-1111-1111-11111111111" + name[len(name)-1:])},
		Spec:       corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable},
	}
	if mounts != "" {
		pod.Spec.Volumes = []corev1.Volume{{Name: "maps", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{
			Driver: v1alpha1.CSIDriverName, VolumeAttributes: map[string]string{v1alpha1.VolumeAttributeProgram: mounts},
		}}}}
	}
	return pod
}

// withPods returns the inspected nodes, of which the first has pods.
func withPods() []client.Object {
	objects := inspected()
	first, ok := objects[0].(*v1alpha1.BpfNode)
	if !ok {
		panic("the first object isn't a BpfNode")
	}
	first.Status.Programs[1].RunTime = &v1alpha1.BpfNodeRunTime{AverageNanoseconds: 210}
	first.Status.Programs = append(first.Status.Programs,
		v1alpha1.BpfNodeProgram{ID: 20, Name: "opens", Type: "kprobe", Bpfman: true, Owner: &v1alpha1.BpfNodeOwner{Kind: "UprobeNsProgram", Namespace: "acme", Name: "tls"}, AttachPoints: []v1alpha1.BpfNodeAttachPoint{
			{Type: "uprobe", Target: "/usr/lib/libssl.so.3:SSL_write", Namespace: "acme", Pod: "web-0"},
			{Type: "uprobe", Target: "/usr/bin/host:main"},
		}},
		v1alpha1.BpfNodeProgram{ID: 21, Name: "kills", Type: "tracepoint", AttachPoints: []v1alpha1.BpfNodeAttachPoint{{Type: "tracepoint", Target: "syscalls/sys_enter_kill"}}},
		v1alpha1.BpfNodeProgram{ID: 22, Name: "connects", Type: "cgroup_sock_addr", AttachPoints: []v1alpha1.BpfNodeAttachPoint{
			{Type: "cgroup_inet4_connect", Target: "/kubepods.slice/kubepods-burstable.slice"},
			{Type: "cgroup_inet4_connect", Target: "/kubepods.slice/kubepods-besteffort.slice"},
			{Type: "cgroup_inet4_connect", Target: "/system.slice/sshd.service"},
			{Type: "cgroup_inet4_connect", Target: "/"},
			{Type: "cgroup_inet4_connect", Target: "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod4711.slice"},
		}},
		v1alpha1.BpfNodeProgram{ID: 23, Name: "elsewhere", Type: "sched_cls", AttachPoints: []v1alpha1.BpfNodeAttachPoint{{Type: "tcx/ingress", Interface: "eth0", NetNs: "4026999"}}},
	)
	first.Status.Maps = []v1alpha1.BpfNodeMap{
		{ID: 3, Name: "tcx_stats_map", Type: "percpu_array", MemoryBytes: 352, Pins: []string{
			"/run/bpfman/fs/maps/12/tcx_stats_map", "/var/lib/kubelet/pods/11111111-1111-1111-1111-111111111110/volumes/kubernetes.io~csi/maps/mount/tcx_stats_map",
		}},
		{ID: 4, Name: "other", Type: "hash", MemoryBytes: 64},
	}
	waiting, done := runningPod("acme", "web-3", "", ""), runningPod("acme", "job-4", "worker-1", "")
	done.Status.Phase = corev1.PodSucceeded
	host := runningPod("kube-system", "cni-5", "worker-1", "")
	host.Spec.HostNetwork = true
	return append(
		objects, runningPod("acme", "web-0", "worker-1", "firewall"), runningPod("acme", "web-1", "worker-1", ""), runningPod("acme", "web-2", "worker-9", "firewall"),
		runningPod("acme", "reader-6", "worker-1", "firewall"), waiting, done, host,
	)
}

func TestPods(t *testing.T) {
	in := func(namespace string) cluster.Connect {
		return func() (*cluster.Cluster, error) {
			c, err := clusterOf(withPods()...)()
			c.Namespace = namespace
			return c, err
		}
	}
	for name, test := range map[string]struct {
		namespace string
		arguments []string
	}{
		"pods.txt":           {"acme", nil},
		"pods-all.txt":       {"acme", []string{"-A"}},
		"pods-none.txt":      {"empty", nil},
		"pods.json":          {"acme", []string{"-o", "json"}},
		"pods-one.txt":       {"acme", []string{"web-0"}},
		"pods-one.json":      {"acme", []string{"reader-6", "-o", "json"}},
		"pods-other.txt":     {"acme", []string{"web-1"}},
		"pods-unmounted.txt": {"acme", []string{"reader-6"}},
		"pods-host.txt":      {"kube-system", []string{"cni-5"}},
		"pods-waiting.txt":   {"acme", []string{"web-3"}},
		"pods-no-node.txt":   {"acme", []string{"web-2"}},
		"pods-both.txt":      {"acme", []string{"web-0", "-A"}},
	} {
		t.Run(name, func(t *testing.T) {
			out, messages, err := execute(t, in(test.namespace), append([]string{"pods"}, test.arguments...)...)
			if err != nil {
				messages += "error: " + err.Error() + "\n"
			}
			golden.Assert(t, out+messages, name)
		})
	}
}
