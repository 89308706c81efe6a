// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// owners are one of each way to select attach points, by name.
func owners() map[string]Owner {
	tcx := func(change func(*v1alpha1.TcxProgram)) Owner {
		o := &v1alpha1.TcxProgram{}
		o.Spec.BpfFunctionName, o.Spec.Direction = "f", "ingress"
		change(o)
		return OwnerOf("TcxProgram", o)
	}
	web := metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	ns := &v1alpha1.TcxNsProgram{ObjectMeta: metav1.ObjectMeta{Namespace: "acme"}}
	ns.Spec.InterfaceSelector.Interfaces, ns.Spec.Containers = &[]string{"eth0"}, &v1alpha1.ContainerNsSelector{}
	probe := &v1alpha1.UprobeProgram{}
	probe.Spec.Containers = &v1alpha1.ContainerSelector{Pods: web}
	return map[string]Owner{
		"named":   tcx(func(o *v1alpha1.TcxProgram) { o.Spec.InterfaceSelector.Interfaces = &[]string{"eth0", "eth1"} }),
		"primary": tcx(func(o *v1alpha1.TcxProgram) { o.Spec.InterfaceSelector.PrimaryNodeInterface = new(true) }),
		"discovered": tcx(func(o *v1alpha1.TcxProgram) {
			o.Spec.InterfaceSelector.InterfacesDiscoveryConfig = &v1alpha1.InterfaceDiscovery{InterfaceAutoDiscovery: new(true), AllowedInterfaces: []string{"/^veth/"}}
		}),
		"pods": tcx(func(o *v1alpha1.TcxProgram) {
			o.Spec.InterfaceSelector.Interfaces, o.Spec.Containers = &[]string{"eth0"}, &v1alpha1.ContainerSelector{Pods: web}
		}),
		"container b": tcx(func(o *v1alpha1.TcxProgram) {
			o.Spec.InterfaceSelector.Interfaces, o.Spec.Containers = &[]string{"eth0"}, &v1alpha1.ContainerSelector{ContainerNames: &[]string{"b"}}
		}),
		"in acme":    OwnerOf("TcxNsProgram", ns),
		"probe":      OwnerOf("UprobeProgram", probe),
		"tracepoint": OwnerOf("TracepointProgram", &v1alpha1.TracepointProgram{}),
		"unattached": tcx(func(o *v1alpha1.TcxProgram) {
			o.Spec.InterfaceSelector.Interfaces, o.Spec.Attach = &[]string{"eth0"}, new(false)
		}),
	}
}

func TestAffected(t *testing.T) {
	node := netip.MustParseAddr("192.0.2.7")
	web := Container{Namespace: "shop", Pod: "web", PodLabels: map[string]string{"app": "web"}, Sandbox: "s", Name: "a", ID: "1", PID: 7}
	with := func(change func(*Container)) []Container {
		changed := web
		change(&changed)
		return []Container{changed}
	}
	before := map[string]Interface{"eth0": {Index: 2, Addresses: []netip.Addr{node}}, "eth1": {Index: 3}}
	now := func(change func(map[string]Interface)) map[string]Interface {
		after := map[string]Interface{"eth0": before["eth0"], "eth1": before["eth1"]}
		change(after)
		return after
	}
	for name, c := range map[string]struct {
		change Change
		want   []string
	}{
		"nothing":              {InterfaceChange(before, now(func(map[string]Interface) {}), []netip.Addr{node}), nil},
		"a named interface":    {InterfaceChange(before, now(func(m map[string]Interface) { m["eth1"] = Interface{Index: 9} }), []netip.Addr{node}), []string{"named"}},
		"one appears":          {InterfaceChange(before, now(func(m map[string]Interface) { m["veth1"] = Interface{Index: 9} }), []netip.Addr{node}), []string{"discovered"}},
		"one that nobody uses": {InterfaceChange(before, now(func(m map[string]Interface) { m["tap1"] = Interface{Index: 9} }), []netip.Addr{node}), nil},
		"the node's address moves": {InterfaceChange(before, now(func(m map[string]Interface) {
			m["eth0"], m["tap1"] = Interface{Index: 2}, Interface{Index: 9, Addresses: []netip.Addr{node}}
		}), []netip.Addr{node}), []string{"discovered", "named", "primary"}},
		"no container differs":    {ContainerChange([]Container{web}, []Container{web}), nil},
		"a container appears":     {ContainerChange(nil, []Container{web}), []string{"pods", "probe"}},
		"a container disappears":  {ContainerChange([]Container{web}, nil), []string{"pods", "probe"}},
		"the selected name":       {ContainerChange(nil, with(func(c *Container) { c.Name = "b" })), []string{"container b", "pods", "probe"}},
		"a container ends":        {ContainerChange([]Container{web}, with(func(c *Container) { c.PID = 0 })), []string{"pods", "probe"}},
		"a pod without the label": {ContainerChange(nil, with(func(c *Container) { c.PodLabels = nil })), nil},
		"the label is removed":    {ContainerChange([]Container{web}, with(func(c *Container) { c.PodLabels = nil })), []string{"pods", "probe"}},
		"the namespace":           {ContainerChange(nil, with(func(c *Container) { c.Namespace, c.PodLabels = "acme", nil })), []string{"in acme"}},
		"its state is unknown":    {ContainerChange([]Container{web}, with(func(c *Container) { c.Err = errors.New("refused") })), []string{"pods", "probe"}},
		"it stays unknown": {ContainerChange(with(func(c *Container) { c.Err = errors.New("refused") }),
			with(func(c *Container) { c.Err = errors.New("refused") })), nil},
		"interfaces in the pod": {ContainerChange([]Container{web}, with(func(c *Container) { c.Interfaces = []string{"eth0"} })), []string{"pods", "probe"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for name, owner := range owners() {
				if owner.Affected(c.change) {
					got = append(got, name)
				}
			}
			if slices.Sort(got); !slices.Equal(got, c.want) {
				t.Errorf("affects %q, want %q", got, c.want)
			}
		})
	}
}

// The containers of a pod are read if an owner could select them.
func TestSelectsPod(t *testing.T) {
	for name, c := range map[string]struct {
		namespace string
		labels    map[string]string
		want      []string
	}{
		"a selected label": {"shop", map[string]string{"app": "web"}, []string{"container b", "pods", "probe"}},
		"another label":    {"shop", map[string]string{"app": "db"}, []string{"container b"}},
		"the namespace":    {"acme", nil, []string{"container b", "in acme"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for name, owner := range owners() {
				if owner.SelectsPod(c.namespace, c.labels) {
					got = append(got, name)
				}
			}
			if slices.Sort(got); !slices.Equal(got, c.want) {
				t.Errorf("selected by %q, want %q", got, c.want)
			}
		})
	}
}
