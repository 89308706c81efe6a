// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package inventory

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// Pod is what the eBPF programs of a node have to do with a pod.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Node      string `json:"node"`
	// Programs are attached in the pod's network, to its processes, or to its control groups, in the order in which they run.
	Programs []Link `json:"programs,omitempty"`
	// NodePrograms see the packets and calls of all pods of the node, such as programs at its interfaces and tracepoints.
	NodePrograms []Link `json:"nodeprograms,omitempty"`
	// Volumes are the objects whose maps the pod mounts.
	Volumes []string `json:"volumes,omitempty"`
	// Maps are the maps in these volumes, if the node's maps are known.
	Maps []Map `json:"maps,omitempty"`
}

// Hooks returns the types of the hooks in the pod, without duplicates.
func (p Pod) Hooks() []string {
	var types []string
	for _, l := range p.Programs {
		if !slices.Contains(types, l.Type) {
			types = append(types, l.Type)
		}
	}
	return types
}

// Pods returns what the programs of a node have to do with its pods, in their order. Programs that container runtimes
// and systemd attach to each container and unit are left out. asked is as for [Chains].
func Pods(node *v1alpha1.BpfNode, pods []corev1.Pod, asked func(owner v1alpha1.BpfNodeOwner, function string) Settings) []Pod {
	status := node.Status
	status.Programs = slices.DeleteFunc(slices.Clone(status.Programs), Routine)
	links, maps := Chains(status, asked), Maps(node, pods)
	var out []Pod
	for i := range pods {
		p := &pods[i]
		if p.Spec.NodeName != node.Name {
			continue
		}
		found := Pod{Namespace: p.Namespace, Name: p.Name, Node: node.Name, Volumes: volumes(p)}
		for _, l := range links {
			switch {
			case !l.Sees(p):
			case l.Pod != "":
				found.Programs = append(found.Programs, l)
			default:
				found.NodePrograms = append(found.NodePrograms, l)
			}
		}
		for _, m := range maps {
			if m.MountedBy(p) {
				found.Maps = append(found.Maps, m)
			}
		}
		out = append(out, found)
	}
	return out
}

// volumes returns the objects that the attributes of a pod's volumes name.
func volumes(pod *corev1.Pod) []string {
	var names []string
	for _, v := range pod.Spec.Volumes {
		if v.CSI == nil || v.CSI.Driver != v1alpha1.CSIDriverName {
			continue
		}
		attributes := v.CSI.VolumeAttributes
		name := cmp.Or(attributes[v1alpha1.VolumeAttributeProgram], attributes[v1alpha1.VolumeAttributeApplication])
		names = append(names, strings.TrimSpace(attributes[v1alpha1.VolumeAttributeKind]+" "+name))
	}
	return names
}

// MountedBy reports whether a volume of a pod contains the map.
func (m Map) MountedBy(pod *corev1.Pod) bool {
	return slices.Contains(m.Pods, pod.Namespace+"/"+pod.Name)
}

// Sees reports whether a program at a hook sees packets or calls of a pod of the node: one in the pod does. Of the others,
// those at a file of the node don't, nor do those of other network namespaces, and of control groups that have no pods, or
// those of another class of quality of service.
func (l Link) Sees(pod *corev1.Pod) bool {
	kind, _, _ := strings.Cut(l.Type, "/")
	switch {
	case l.Pod != "":
		return l.Pod == pod.Name && l.Namespace == pod.Namespace
	case l.NetNs != "", slices.Contains([]string{"uprobe", "uretprobe", "uprobe_multi", "iter", "struct_ops"}, kind):
		return false
	case !strings.HasPrefix(kind, "cgroup_"):
		return true
	}
	_, group, _ := strings.Cut(l.Hook, " ")
	for _, class := range []corev1.PodQOSClass{corev1.PodQOSBestEffort, corev1.PodQOSBurstable} {
		name := strings.ToLower(string(class))
		if strings.HasSuffix(group, "kubepods/"+name) || strings.HasSuffix(group, "kubepods-"+name+".slice") {
			return class == pod.Status.QOSClass
		}
	}
	return group == "/" || strings.HasSuffix(group, "kubepods") || strings.HasSuffix(group, "kubepods.slice")
}
