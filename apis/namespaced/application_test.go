// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package namespaced

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// Each program selects only pods in the object's namespace, with or without links, even if the API server has an object
// without selectors, which the definition doesn't admit.
func TestMembersStayInTheNamespace(t *testing.T) {
	pods := LinkPods{
		Pods: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Attachment: v1alpha1.AttachBeforeStart, FailurePolicy: v1alpha1.StartFail,
	}
	network := NetworkLink{InterfaceSelector: v1alpha1.LinkInterfaces{Interfaces: &[]string{"eth0"}}, NetworkNamespaces: pods, Priority: new(int32(7))}
	probe := UprobeLink{
		UprobeTarget: v1alpha1.UprobeTarget{Function: "malloc", Offset: 4, Target: "libc", Pid: new(int32(9))},
		Containers:   LinkContainers{LinkPods: pods, ContainerNames: &[]string{"nginx"}},
	}
	tcx := TcxLink{NetworkLink: network, Direction: "Egress"}
	for name, programs := range map[string][]BpfApplicationProgram{
		"links": {
			{Name: "xdp", Type: "XDP", XDP: &XdpLinks{Links: []XdpLink{{NetworkLink: network, ProceedOn: []v1alpha1.XdpLinkResult{"Drop"}}}}},
			{Name: "tc", Type: "TC", TC: &TcLinks{Links: []TcLink{{TcxLink: tcx, ProceedOn: []v1alpha1.TcLinkResult{"OK"}}}}},
			{Name: "tcx", Type: "TCX", TCX: &TcxLinks{Links: []TcxLink{tcx}}},
			{Name: "uprobe", Type: "UProbe", UProbe: &UprobeLinks{Links: []UprobeLink{probe}}},
			{Name: "uretprobe", Type: "URetProbe", URetProbe: &UprobeLinks{Links: []UprobeLink{probe}}},
		},
		"no links": {
			{Type: "XDP", XDP: &XdpLinks{}},
			{Type: "TC", TC: &TcLinks{}},
			{Type: "TCX", TCX: &TcxLinks{}},
			{Type: "UProbe", UProbe: &UprobeLinks{}},
			{Type: "URetProbe", URetProbe: &UprobeLinks{}},
		},
		"empty links": {
			{Type: "XDP", XDP: &XdpLinks{Links: []XdpLink{{}}}},
			{Type: "TC", TC: &TcLinks{Links: []TcLink{{}}}},
			{Type: "TCX", TCX: &TcxLinks{Links: []TcxLink{{}}}},
			{Type: "UProbe", UProbe: &UprobeLinks{Links: []UprobeLink{{}}}},
			{Type: "URetProbe", URetProbe: &UprobeLinks{Links: []UprobeLink{{}}}},
		},
	} {
		o := &BpfApplication{ObjectMeta: metav1.ObjectMeta{Namespace: "acme"}, Spec: BpfApplicationSpec{Programs: programs}}
		members, namespaced := o.Members()
		if !namespaced || len(members) != len(programs) {
			t.Fatalf("%s: %d members, namespaced: %v", name, len(members), namespaced)
		}
		for i := range members {
			m := &members[i]
			in, attach := m.Info().ContainerSelector(), m.Info().Common().Attach
			if in == nil || in.Namespace != "acme" || (attach != nil) != (name == "no links") {
				t.Errorf("%s: %s selects %+v, attach %v", name, m.Type, in, attach)
			}
			if name != "links" {
				continue
			}
			if in.Pods.MatchLabels["app"] != "web" || in.Attachment != pods.Attachment || in.FailurePolicy != pods.FailurePolicy || m.Info().Common().BpfFunctionName != programs[i].Name {
				t.Errorf("%s selects %+v", m.Type, in)
			}
		}
	}
	o := &BpfApplication{Spec: BpfApplicationSpec{Programs: []BpfApplicationProgram{
		{Type: "XDP", XDP: &XdpLinks{Links: []XdpLink{{NetworkLink: network, ProceedOn: []v1alpha1.XdpLinkResult{"Drop"}}}}},
		{Type: "TC", TC: &TcLinks{Links: []TcLink{{TcxLink: tcx, ProceedOn: []v1alpha1.TcLinkResult{"OK"}}}}},
		{Type: "UProbe", UProbe: &UprobeLinks{Links: []UprobeLink{probe}}},
	}}}
	members, _ := o.Members()
	xdp, tc, uprobe := members[0].XDP, members[1].TC, members[2].Uprobe
	if xdp.Priority != 7 || len(xdp.ProceedOn) != 1 || xdp.ProceedOn[0] != "drop" || (*xdp.InterfaceSelector.Interfaces)[0] != "eth0" {
		t.Errorf("xdp %+v", xdp)
	}
	if tc.Direction != "egress" || tc.Priority != 7 || len(tc.ProceedOn) != 1 || tc.ProceedOn[0] != "ok" {
		t.Errorf("tc %+v", tc)
	}
	if uprobe.FunctionName != "malloc" || uprobe.Offset != 4 || uprobe.Target != "libc" || uprobe.Pid != 9 || (*uprobe.Containers.ContainerNames)[0] != "nginx" {
		t.Errorf("uprobe %+v", uprobe)
	}
}

// The fields that most kinds have can be read and written.
func TestAppCommon(t *testing.T) {
	o := &BpfApplication{}
	o.SetAppCommon(v1alpha1.BpfAppCommon{
		NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}, GlobalData: v1alpha1.GlobalData{"g": {1}},
		ByteCode: v1alpha1.BytecodeSelector{Image: &v1alpha1.BytecodeImage{Url: "x", ImagePullSecret: &v1alpha1.ImagePullSecretSelector{Name: "s", Namespace: "acme"}}},
	})
	c := o.GetAppCommon()
	if o.Spec.ByteCode.Image.URL != "x" || c.ByteCode.Image.ImagePullSecret.Name != "s" || c.NodeSelector.MatchLabels["a"] != "b" || c.GlobalData["g"][0] != 1 {
		t.Errorf("%+v", c)
	}
}

func TestNew(t *testing.T) {
	if _, is := New("BpfApplication", "acme").(*BpfApplication); !is {
		t.Error("a namespaced BpfApplication has another type")
	}
	if _, is := New("BpfApplication", "").(*v1alpha1.BpfApplication); !is {
		t.Error("a cluster-scoped BpfApplication has another type")
	}
	if _, is := New("BpfNsApplication", "acme").(*v1alpha1.BpfNsApplication); !is || New("Pod", "") != nil {
		t.Error("other kinds")
	}
}
