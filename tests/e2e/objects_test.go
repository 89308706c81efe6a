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

func tracepointInfo(names ...string) v1alpha1.TracepointProgramInfo {
	return v1alpha1.TracepointProgramInfo{BpfProgramCommon: functionOf("tracepoint_kill_recorder"), Names: names}
}

// reader returns an example application that prints what the maps of a program count.
func reader(namespace, name, program, maps string) *corev1.Pod {
	return readers.Pod(settings.counters, namespace, name, program, maps)
}
