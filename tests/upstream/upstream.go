// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package upstream contains what upstream's bpfman-operator v0.5.6 leaves in a cluster, object by object,
// according to observation. Its images are replaced.
package upstream

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

const (
	// FieldManager is the field manager of upstream's operator, whose Go client makes updates.
	FieldManager = client.FieldOwner("bpfman-operator")
	// AgentFieldManager is the field manager of upstream's agent.
	AgentFieldManager = client.FieldOwner("bpfman-agent")
	// Finalizer is the finalizer of the ConfigMap, the DaemonSet, and each user object.
	Finalizer = "bpfman.io.operator/finalizer"
	// LeaseName is the name of the Lease for upstream's leader election.
	LeaseName = "8730d955.bpfman.io"
)

// NewerResources returns the resources of this project's definitions that upstream's v0.5.6 doesn't have.
func NewerResources() []string {
	return []string{
		"clusterbpfapplications", "lsmprograms", v1alpha1.NodeKind.Resource(), v1alpha1.PolicyKind.Resource(), v1alpha1.RolloutPolicyKind.Resource(),
	}
}

// ReportFinalizer returns the finalizer of reports about an owner of the kind.
func ReportFinalizer(kind string) string {
	return "bpfman.io." + strings.ToLower(kind) + "controller/finalizer"
}

// ConfigMap returns the ConfigMap in upstream's kustomization, with the operator's finalizer.
func ConfigMap(namespace string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "bpfman-config", Finalizers: []string{Finalizer}},
		Data: map[string]string{
			"bpfman.image":                  "quay.io/bpfman/bpfman:latest",
			"bpfman.agent.image":            "quay.io/bpfman/bpfman-agent:latest",
			"bpfman.log.level":              "info",
			"bpfman.agent.log.level":        "info",
			"bpfman.agent.healthprobe.addr": ":8175",
			"bpfman.agent.metric.addr":      "127.0.0.1:8174",
			"bpfman.toml":                   "[database]\nmax_retries = 30\nmillisec_delay = 10000\n",
		},
	}
}

// StandIn replaces upstream's images.
type StandIn struct {
	Image   string
	Command []string
}

// DaemonSet returns the DaemonSet that upstream's operator creates, without host paths that would be created on a
// node that lacks them.
//
//nolint:funlen // a complete object
func DaemonSet(namespace string, standIn StandIn) *appsv1.DaemonSet {
	labels := map[string]string{"name": "bpfman-daemon"}
	fromConfig := func(name, key string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "bpfman-config"}, Key: key,
		}}}
	}
	nodeName := corev1.EnvVar{Name: "KUBE_NODE_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}}
	container := func(name string, mounts []corev1.VolumeMount, env ...corev1.EnvVar) corev1.Container {
		return corev1.Container{
			Name: name, Image: standIn.Image, Command: standIn.Command, ImagePullPolicy: corev1.PullIfNotPresent,
			Env: env, VolumeMounts: mounts, SecurityContext: &corev1.SecurityContext{Privileged: new(true)},
		}
	}
	toHost := corev1.MountPropagationBidirectional
	at := func(name, path string, propagation *corev1.MountPropagationMode) corev1.VolumeMount {
		return corev1.VolumeMount{Name: name, MountPath: path, MountPropagation: propagation}
	}
	return &appsv1.DaemonSet{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "bpfman-daemon", Labels: map[string]string{"k8s-app": "bpfman"}, Finalizers: []string{Finalizer},
		},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{
					"bpfman.io.bpfman.loglevel":              "info",
					"bpfman.io.bpfman.agent.loglevel":        "info",
					"bpfman.io.bpfman.agent.healthprobeaddr": ":8175",
					"bpfman.io.bpfman.agent.metricaddr":      "127.0.0.1:8174",
				}},
				Spec: corev1.PodSpec{
					HostNetwork: true, DNSPolicy: corev1.DNSClusterFirstWithHostNet, ServiceAccountName: "bpfman-daemon",
					AutomountServiceAccountToken: new(true), TerminationGracePeriodSeconds: new(int64(15)),
					SecurityContext: &corev1.PodSecurityContext{FSGroup: new(int64(2000))},
					Tolerations: []corev1.Toleration{
						{Key: "node-role.kubernetes.io/control-plane", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
						{Key: "node-role.kubernetes.io/master", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
					},
					Containers: []corev1.Container{
						container("bpfman", []corev1.VolumeMount{
							at("bpfman-sock", "/run/bpfman-sock", nil),
							at("runtime", "/run/bpfman", &toHost),
							{Name: "bpfman-config", MountPath: "/etc/bpfman/bpfman.toml", SubPath: "bpfman.toml", ReadOnly: true},
							at("host-debug", "/sys/kernel/debug", nil),
							at("default-bpf-fs", "/sys/fs/bpf", &toHost),
							at("host-proc", "/host/proc", nil),
						}, fromConfig("RUST_LOG", "bpfman.log.level"), nodeName),
						container("bpfman-agent", []corev1.VolumeMount{at("bpfman-sock", "/run/bpfman-sock", nil)}, fromConfig("GO_LOG", "bpfman.agent.log.level"), nodeName),
						container("node-driver-registrar", []corev1.VolumeMount{at("registration-dir", "/registration", nil)}, nodeName),
					},
					Volumes: []corev1.Volume{
						{Name: "bpfman-sock", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
						{Name: "bpfman-config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
							LocalObjectReference: corev1.LocalObjectReference{Name: "bpfman-config"},
						}}},
						onHost("runtime", "/run/bpfman", corev1.HostPathDirectoryOrCreate),
						onHost("host-debug", "/sys/kernel/debug", corev1.HostPathUnset),
						onHost("default-bpf-fs", "/sys/fs/bpf", corev1.HostPathDirectoryOrCreate),
						onHost("host-proc", "/proc", corev1.HostPathUnset),
						onHost("registration-dir", "/var/lib/kubelet/plugins_registry", corev1.HostPathDirectory),
					},
				},
			},
		},
	}
}

func onHost(name, path string, kind corev1.HostPathType) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &kind}}}
}

// CSIDriver returns the CSIDriver that upstream's operator creates if there is none.
func CSIDriver() *storagev1.CSIDriver {
	return &storagev1.CSIDriver{
		TypeMeta:   metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: "CSIDriver"},
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.CSIDriverName},
		Spec: storagev1.CSIDriverSpec{
			AttachRequired: new(false), PodInfoOnMount: new(true),
			VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral},
		},
	}
}

// Deployment returns the operator's Deployment in upstream's kustomization.
func Deployment(namespace string, standIn StandIn) *appsv1.Deployment {
	labels := map[string]string{"control-plane": "controller-manager"}
	container := func(name string) corev1.Container {
		return corev1.Container{Name: name, Image: standIn.Image, Command: standIn.Command, ImagePullPolicy: corev1.PullIfNotPresent}
	}
	proxy := container("kube-rbac-proxy")
	proxy.Ports = []corev1.ContainerPort{{Name: "https", ContainerPort: 8443, Protocol: corev1.ProtocolTCP}}
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "bpfman-operator", Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					ServiceAccountName: "bpfman-operator", TerminationGracePeriodSeconds: new(int64(10)),
					Containers: []corev1.Container{container("bpfman-operator"), proxy},
				},
			},
		},
	}
}

// Service returns the Service for that Deployment.
func Service(namespace string) *corev1.Service {
	labels := map[string]string{"control-plane": "controller-manager"}
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "bpfman-controller-manager-metrics-service", Labels: labels},
		Spec: corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{
			{Name: "https", Port: 8443, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString("https")},
		}},
	}
}
