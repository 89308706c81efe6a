// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package inventory

import (
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/kubelet"
)

// Map is a map in the kernel of a node.
type Map struct {
	Node                string `json:"node"`
	v1alpha1.BpfNodeMap `json:",inline"`
	// Programs are the programs that use the map, with their IDs.
	Programs []string `json:"programs,omitempty"`
	// Pods are the pods with a volume that contains the map.
	Pods []string `json:"pods,omitempty"`
}

// Unused reports whether the map only takes memory: no program and no pod uses it.
func (m Map) Unused() bool { return len(m.Programs) == 0 && len(m.Pods) == 0 }

// Stale reports whether pods mount the map, but no program uses it anymore: the program was reloaded with other maps,
// or deleted.
func (m Map) Stale() bool { return len(m.Programs) == 0 && len(m.Pods) > 0 }

// Place is a pod, or a container of it. It is empty for what isn't in one.
type Place struct{ Namespace, Pod, Container string }

// String names the place, such as shop/web-0/app.
func (p Place) String() string {
	return strings.TrimSuffix(p.Namespace+"/"+p.Pod+"/"+p.Container, "/")
}

// OnlyPlace returns the pod whose packets or calls the programs with a map see, and the container if they see those of one only.
// It is empty if they are attached elsewhere too, or in several pods. reports are about programs of any node. Only they tell in
// which containers uprobes are.
func OnlyPlace(node *v1alpha1.BpfNode, mapID uint32, reports []v1alpha1.ProgramObject) (only Place) {
	for _, p := range Programs(node) {
		if !slices.Contains(p.MapIDs, mapID) {
			continue
		}
		places, known := p.places(reports)
		if !known {
			return Place{}
		}
		for _, at := range places {
			switch {
			case at.Pod == "", only.Pod != "" && (at.Pod != only.Pod || at.Namespace != only.Namespace):
				return Place{}
			case only.Pod != "" && at.Container != only.Container:
				at.Container = ""
			}
			only = at
		}
	}
	return only
}

// places returns where a program is attached. It returns false if that isn't known.
func (p Program) places(reports []v1alpha1.ProgramObject) (places []Place, known bool) {
	for _, report := range reports {
		status := report.GetStatus()
		if status.Node != p.Node || status.ProgramID != p.ID {
			continue
		}
		for _, l := range status.Links {
			if l.State == v1alpha1.LinkAttached {
				places = append(places, placeOf(l.AttachPoint))
			}
		}
		return places, true
	}
	for _, a := range p.points() {
		places = append(places, Place{Namespace: a.Namespace, Pod: a.Pod})
	}
	return places, p.Unknown == ""
}

// placeOf returns the place in the description of an attach point.
func placeOf(point string) Place {
	if i := strings.LastIndex(point, v1alpha1.OfContainer); i >= 0 {
		if parts := strings.Split(point[i+len(v1alpha1.OfContainer):], "/"); len(parts) == 3 {
			return Place{parts[0], parts[1], parts[2]}
		}
	}
	if _, in, found := strings.Cut(point, v1alpha1.InPod); found {
		namespace, pod, _ := strings.Cut(in, "/")
		return Place{Namespace: namespace, Pod: pod}
	}
	return Place{}
}

// Maps returns the maps of a node, by ID. pods are the pods of the cluster, whose volumes can contain maps.
func Maps(node *v1alpha1.BpfNode, pods []corev1.Pod) []Map {
	programs := map[uint32][]string{}
	for _, p := range node.Status.Programs {
		for _, id := range p.MapIDs {
			programs[id] = append(programs[id], strings.TrimSpace(p.Name+" ("+strconv.FormatUint(uint64(p.ID), 10)+")"))
		}
	}
	mounting := map[string]string{}
	for i := range pods {
		mounting[string(pods[i].UID)] = pods[i].Namespace + "/" + pods[i].Name
	}
	out := make([]Map, 0, len(node.Status.Maps))
	for _, m := range node.Status.Maps {
		found := Map{Node: node.Name, BpfNodeMap: m, Programs: programs[m.ID]}
		found.Name = nameOf(m)
		for _, pin := range m.Pins {
			if uid := kubelet.PodOf(pin); uid != "" {
				name, known := mounting[uid]
				if !known {
					name = "pod " + uid
				}
				found.Pods = append(found.Pods, name)
			}
		}
		slices.Sort(found.Pods)
		found.Pods = slices.Compact(found.Pods)
		out = append(out, found)
	}
	return out
}

// daemonMaps is the directory where the bpfman daemon pins maps.
const daemonMaps = "/run/bpfman/fs/maps/"

// nameOf returns the whole name of a map that the daemon has pinned. The kernel keeps 15 characters of it, which several
// maps can have in common.
func nameOf(m v1alpha1.BpfNodeMap) string {
	for _, pin := range m.Pins {
		if name := path.Base(pin); strings.HasPrefix(pin, daemonMaps) && strings.HasPrefix(name, m.Name) {
			return name
		}
	}
	return m.Name
}
