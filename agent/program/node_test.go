// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// web returns a container of the pod acme/web-0.
func web(uid string, change func(*Container)) Container {
	c := Container{
		Namespace: "acme", Pod: "web-0", PodUID: uid, PodLabels: map[string]string{"app": "web"},
		Sandbox: "s-" + uid, NetNS: "/proc/7/ns/net", Name: "web", ID: "c-" + uid, PID: 11, Interfaces: []string{"eth0"},
	}
	change(&c)
	return c
}

func as(*Container) {}

// inPods returns programs of each way of selecting hooks in pods, for all pods of the namespace acme.
func inPods(namespaced bool) map[string]Spec {
	selector := containerSelector{v1alpha1.ContainerSelector{Namespace: "acme", Pods: app("web")}, namespaced}
	return map[string]Spec{
		"named":      tcx{onNetwork{interfaces: interfaces("eth0"), containers: &selector}, "ingress"},
		"discovered": tcx{onNetwork{interfaces: discover(nil, nil), containers: &selector}, "ingress"},
		"uprobe":     uprobe{symbol: "malloc", target: "libc", containers: &selector},
	}
}

func names(points []AttachPoint) []string {
	var all []string
	for _, p := range points {
		all = append(all, p.Name)
	}
	return all
}

// A pod that was deleted by force can run on. It can't escape cluster-scoped programs, and a namespaced program of
// a new namespace with the same name doesn't get it.
func TestPodsThatAreDeletedByForce(t *testing.T) {
	deleted := func(c *Container) { c.Deleted = true }
	superseded := func(c *Container) { c.Deleted, c.Superseded = true, true }
	for name, test := range map[string]struct {
		containers []Container
		namespaced bool
		want       []string // the pods
	}{
		"there":                        {[]Container{web("u1", as)}, false, []string{"acme/web-0"}},
		"deleted":                      {[]Container{web("u1", deleted)}, false, []string{"acme/web-0"}},
		"deleted, with a successor":    {[]Container{web("u1", superseded), web("u2", as)}, false, []string{"acme/web-0", "acme/web-0 (UID u1)"}},
		"there, namespaced":            {[]Container{web("u1", as)}, true, []string{"acme/web-0"}},
		"deleted, namespaced":          {[]Container{web("u1", deleted)}, true, nil},
		"with a successor, namespaced": {[]Container{web("u1", superseded), web("u2", as)}, true, []string{"acme/web-0"}},
	} {
		for way, spec := range inPods(test.namespaced) {
			points, err := spec.AttachPoints(Node{Containers: test.containers, UprobeNamespaces: []string{"*"}})
			got := names(points)
			for i := range got {
				_, got[i], _ = strings.Cut(got[i], "acme/")
				got[i] = "acme/" + strings.TrimSuffix(got[i], "/web")
			}
			if slices.Sort(got); err != nil || !slices.Equal(got, test.want) {
				t.Errorf("%s, %s: %q, %v, want %q", name, way, got, err, test.want)
			}
		}
	}
	kept, _ := inPods(false)["named"].AttachPoints(Node{Containers: []Container{web("u1", as)}})
	after, _ := inPods(false)["named"].AttachPoints(Node{Containers: []Container{web("u1", deleted)}})
	if len(kept) != 1 || len(after) != 1 || kept[0].Name != after[0].Name || kept[0].Digest != after[0].Digest {
		t.Errorf("the link of a pod changes when it is deleted: %+v, %+v", kept, after)
	}
}

// If the runtime doesn't answer about one container, the others are attached, and it isn't known whether there are more.
func TestContainersWhoseStateIsUnknown(t *testing.T) {
	unknown := func(c *Container) { c.PID, c.NetNS, c.Err = 0, "", errors.New("no answer about "+c.ID) }
	other := func(c *Container) { unknown(c); c.PodLabels = nil }
	for name, test := range map[string]struct {
		containers []Container
		points     int
		err        string
	}{
		"one":          {[]Container{web("u1", unknown), web("u2", as)}, 1, "no answer about c-u1"},
		"several":      {[]Container{web("u1", unknown), web("u2", as), web("u3", unknown), web("u4", unknown)}, 1, "no answer about c-u1; and 2 more containers"},
		"not selected": {[]Container{web("u1", other), web("u2", as)}, 1, ""},
	} {
		for way, spec := range inPods(false) {
			points, err := spec.AttachPoints(Node{Containers: test.containers})
			absent := (*AbsentError)(nil)
			if len(points) != test.points || text(err) != test.err || test.err != "" && !errors.As(err, &absent) {
				t.Errorf("%s, %s: %q, %v", name, way, names(points), err)
			}
		}
	}
}

// A pod has its network before it has a container: network programs are attached then, and stay when containers come. What
// isn't known about a container doesn't matter to them.
func TestPodsWithoutAContainer(t *testing.T) {
	sandbox := func(c *Container) { c.Name, c.ID, c.PID = "", "", 0 }
	refused := func(c *Container) { c.PID, c.Err = 0, errors.New("no answer about "+c.ID) }
	unknown := func(c *Container) { sandbox(c); c.Err = errors.New("no answer about the sandbox") }
	links := map[string]map[string]string{}
	for _, test := range []struct {
		name            string
		containers      []Container
		network, probes string
	}{
		{"the sandbox", []Container{web("u1", sandbox)}, "", ""},
		{"and a container", []Container{web("u1", sandbox), web("u1", as)}, "", "acme/web-0/web"},
		{"whose state is unknown", []Container{web("u1", sandbox), web("u1", refused)}, "", "no answer about c-u1"},
		{"the sandbox is unknown", []Container{web("u1", unknown)}, "no answer about the sandbox", ""},
	} {
		links[test.name] = map[string]string{}
		for way, spec := range inPods(false) {
			points, err := spec.AttachPoints(Node{Containers: test.containers})
			if way == "uprobe" {
				got := text(err)
				for _, p := range points {
					_, got, _ = strings.Cut(p.Name, " of container ")
				}
				if got != test.probes {
					t.Errorf("%s: uprobes: %q, want %q", test.name, got, test.probes)
				}
				continue
			}
			if text(err) != test.network || len(points) != 1 && err == nil {
				t.Errorf("%s, %s: %q, %v", test.name, way, names(points), err)
			}
			for _, p := range points {
				links[test.name][way] = p.Name + p.Digest
			}
		}
	}
	if before, after := links["the sandbox"], links["and a container"]; !maps.Equal(before, after) {
		t.Errorf("the links are %v, and %v with a container", before, after)
	}
}

// While a pod has no process, its interfaces are unknown. That isn't a failure, and not the absence of interfaces.
func TestPodsWithoutAProcess(t *testing.T) {
	unseen := func(c *Container) { c.Interfaces, c.InterfacesErr = nil, ErrUnseen }
	failed := func(c *Container) { c.Interfaces, c.InterfacesErr = nil, errors.New("unreadable") }
	for name, test := range map[string]struct {
		containers []Container
		want       string
	}{
		"seen":              {[]Container{web("u1", as)}, ""},
		"one isn't":         {[]Container{web("u1", as), web("u2", unseen)}, ErrUnseen.Error()},
		"another one fails": {[]Container{web("u1", as), web("u2", unseen), web("u3", failed)}, "unreadable"},
	} {
		points, err := inPods(false)["discovered"].AttachPoints(Node{Containers: test.containers})
		if len(points) != 1 || text(err) != test.want {
			t.Errorf("%s: %q, %v", name, names(points), err)
		}
	}
	if points, err := inPods(false)["named"].AttachPoints(Node{Containers: []Container{web("u1", unseen)}}); len(points) != 1 || err != nil {
		t.Errorf("named: %q, %v", names(points), err)
	}
}
