// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package reader provides the example application for tests: an unprivileged pod without
// capabilities that prints what the maps in its volume count.
package reader

import (
	"regexp"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// Unprivileged is a part of the first line that the application prints.
const Unprivileged = "as uid 65534, gid 65534, CapEff 0000000000000000"

// Pod returns a pod that reads maps of a program. The names of the maps are separated by
// commas, and "*" means all maps.
func Pod(image, namespace, name, program, maps string) *corev1.Pod {
	unprivileged, none, nobody, yes := false, []corev1.Capability{"ALL"}, int64(65534), true
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: &unprivileged,
			SecurityContext:              &corev1.PodSecurityContext{RunAsNonRoot: &yes, RunAsUser: &nobody, RunAsGroup: &nobody, FSGroup: &nobody},
			Containers: []corev1.Container{{
				Name: "counters", Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
				Args: []string{"--maps=/run/maps", "--interval=250ms"},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: &unprivileged, ReadOnlyRootFilesystem: &yes,
					Capabilities: &corev1.Capabilities{Drop: none},
				},
				VolumeMounts: []corev1.VolumeMount{{Name: "maps", MountPath: "/run/maps", ReadOnly: true}},
			}},
			Volumes: []corev1.Volume{{Name: "maps", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{
				Driver: v1alpha1.CSIDriverName, ReadOnly: &yes,
				VolumeAttributes: map[string]string{v1alpha1.VolumeAttributeProgram: program, v1alpha1.VolumeAttributeMaps: maps},
			}}}},
		},
	}
}

var countLine = regexp.MustCompile(`(?m)^(\S+): (?:packets|events)=(\d+)`)

// Counts returns the last count of each map in the application's output.
func Counts(log string) map[string]uint64 {
	last := map[string]uint64{}
	for _, m := range countLine.FindAllStringSubmatch(log, -1) {
		if n, err := strconv.ParseUint(m[2], 10, 64); err == nil {
			last[m[1]] = n
		}
	}
	return last
}
