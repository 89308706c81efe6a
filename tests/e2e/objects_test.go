// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	readers "github.com/bpfman/bpfman-operator/tests/reader"
)

// image returns one of the sample bytecode images.
func image(name string) v1alpha1.BytecodeSelector {
	return v1alpha1.BytecodeSelector{Image: &v1alpha1.BytecodeImage{Url: settings.bytecode + "/" + name + ":latest"}}
}

func functionOf(name string) v1alpha1.BpfProgramCommon {
	return v1alpha1.BpfProgramCommon{BpfFunctionName: name}
}

// tcx returns a TcxProgram with the image tcx_test.
func tcx(name, iface string) *v1alpha1.TcxProgram {
	return &v1alpha1.TcxProgram{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.TcxProgramSpec{
			TcxProgramInfo: tcxInfo("tcx_next", on(iface)),
			BpfAppCommon:   of("tcx_test"),
		},
	}
}

// tracepoint returns a program that counts calls of kill(2) in the map
// tracepoint_stats_map.
func tracepoint(name string) *v1alpha1.TracepointProgram {
	return &v1alpha1.TracepointProgram{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.TracepointProgramSpec{
			TracepointProgramInfo: tracepointInfo(killCalls),
			BpfAppCommon:          of("go-tracepoint-counter"),
		},
	}
}

// xdp, tc, tcxCounter, and tcxNs return programs that count packets. The latter does so in the pods of a namespace with the
// label of targetPods.
func xdp(meta metav1.ObjectMeta, at v1alpha1.InterfaceSelector) *v1alpha1.XdpProgram {
	return &v1alpha1.XdpProgram{ObjectMeta: meta, Spec: v1alpha1.XdpProgramSpec{XdpProgramInfo: xdpInfo(at), BpfAppCommon: of("go-xdp-counter")}}
}

func tc(meta metav1.ObjectMeta, at v1alpha1.InterfaceSelector) *v1alpha1.TcProgram {
	return &v1alpha1.TcProgram{ObjectMeta: meta, Spec: v1alpha1.TcProgramSpec{TcProgramInfo: tcInfo(at), BpfAppCommon: of("go-tc-counter")}}
}

func tcxCounter(meta metav1.ObjectMeta, at v1alpha1.InterfaceSelector) *v1alpha1.TcxProgram {
	return &v1alpha1.TcxProgram{ObjectMeta: meta, Spec: v1alpha1.TcxProgramSpec{TcxProgramInfo: tcxInfo("tcx_stats", at), BpfAppCommon: of("go-tcx-counter")}}
}

func tcxNs(namespace, name string) *v1alpha1.TcxNsProgram {
	return &v1alpha1.TcxNsProgram{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec:       v1alpha1.TcxNsProgramSpec{TcxNsProgramInfo: tcxNsInfo(), BpfAppCommon: of("go-tcx-counter")},
	}
}

// application returns an application that counts calls of kill(2), and packets at the loopback interface.
func application(name string) *v1alpha1.BpfApplication {
	return &v1alpha1.BpfApplication{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.BpfApplicationSpec{
		BpfAppCommon: of("go-app-counter"),
		Programs: []v1alpha1.BpfApplicationProgram{
			{Type: v1alpha1.ProgTypeTracepoint, Tracepoint: new(tracepointInfo(killCalls))},
			{Type: v1alpha1.ProgTypeTCX, TCX: new(tcxInfo("tcx_stats", on("lo")))},
		},
	}}
}

func tracepointInfo(names ...string) v1alpha1.TracepointProgramInfo {
	return v1alpha1.TracepointProgramInfo{BpfProgramCommon: functionOf("tracepoint_kill_recorder"), Names: names}
}

// reader returns an example application that prints what the maps of a program count.
func reader(namespace, name, program, maps string) *corev1.Pod {
	return readers.Pod(settings.counters, namespace, name, program, maps)
}
