// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package apiserver

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// addDefaults adds the defaults of the kinds whose defaults clients see. Those of kube-apiserver can't be imported.
func addDefaults(s *runtime.Scheme) {
	add(s, defaultNamespace)
	add(s, defaultSecret)
	add(s, defaultCSIDriver)
	add(s, defaultPod)
	add(s, defaultDaemonSet)
	add(s, defaultDeployment)
}

func defaultNamespace(o *corev1.Namespace) {
	if o.Name == "" {
		return
	}
	if o.Labels == nil {
		o.Labels = map[string]string{}
	}
	o.Labels[corev1.LabelMetadataName] = o.Name
}

func defaultSecret(o *corev1.Secret) {
	set(&o.Type, corev1.SecretTypeOpaque)
	for key, value := range o.StringData {
		if o.Data == nil {
			o.Data = map[string][]byte{}
		}
		o.Data[key] = []byte(value)
	}
	o.StringData = nil
}

func defaultCSIDriver(o *storagev1.CSIDriver) {
	spec := &o.Spec
	setPointer(&spec.AttachRequired, true)
	setPointer(&spec.PodInfoOnMount, false)
	setPointer(&spec.StorageCapacity, false)
	setPointer(&spec.FSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	setPointer(&spec.RequiresRepublish, false)
	setPointer(&spec.SELinuxMount, false)
	setPointer(&spec.PreventPodSchedulingIfMissing, false)
	if len(spec.VolumeLifecycleModes) == 0 {
		spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
}

func defaultPod(o *corev1.Pod) {
	defaultPodSpec(&o.Spec)
	setPointer(&o.Spec.EnableServiceLinks, true)
	for _, containers := range [][]corev1.Container{o.Spec.InitContainers, o.Spec.Containers} {
		for i := range containers {
			requestLimits(&containers[i].Resources)
		}
	}
	if o.Status.PodIP != "" && len(o.Status.PodIPs) == 0 {
		o.Status.PodIPs = []corev1.PodIP{{IP: o.Status.PodIP}}
	}
}

func defaultDaemonSet(o *appsv1.DaemonSet) {
	defaultPodSpec(&o.Spec.Template.Spec)
	set(&o.Spec.UpdateStrategy.Type, appsv1.RollingUpdateDaemonSetStrategyType)
	if o.Spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		update := &o.Spec.UpdateStrategy
		setPointer(&update.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
		setPointer(&update.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
		setPointer(&update.RollingUpdate.MaxSurge, intstr.FromInt32(0))
	}
	setPointer(&o.Spec.RevisionHistoryLimit, 10)
}

func defaultDeployment(o *appsv1.Deployment) {
	defaultPodSpec(&o.Spec.Template.Spec)
	setPointer(&o.Spec.Replicas, 1)
	set(&o.Spec.Strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if o.Spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		strategy := &o.Spec.Strategy
		setPointer(&strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
		setPointer(&strategy.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
		setPointer(&strategy.RollingUpdate.MaxSurge, intstr.FromString("25%"))
	}
	setPointer(&o.Spec.RevisionHistoryLimit, 10)
	setPointer(&o.Spec.ProgressDeadlineSeconds, 600)
}

func add[T any, O interface {
	*T
	runtime.Object
}](s *runtime.Scheme, set func(O),
) {
	s.AddTypeDefaultingFunc(O(new(T)), func(o any) { set(o.(O)) }) //nolint:errcheck,forcetypeassert // the scheme passes this type
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func setPointer[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

func defaultPodSpec(spec *corev1.PodSpec) {
	set(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	set(&spec.DNSPolicy, corev1.DNSClusterFirst)
	set(&spec.SchedulerName, corev1.DefaultSchedulerName)
	setPointer(&spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
	setPointer(&spec.SecurityContext, corev1.PodSecurityContext{})
	if spec.ServiceAccountName != "" { // the deprecated field has the same value
		set(&spec.DeprecatedServiceAccount, spec.ServiceAccountName)
	}
	for i := range spec.InitContainers {
		defaultContainer(&spec.InitContainers[i], spec.HostNetwork)
	}
	for i := range spec.Containers {
		defaultContainer(&spec.Containers[i], spec.HostNetwork)
	}
	for i := range spec.Volumes {
		defaultVolume(&spec.Volumes[i].VolumeSource)
	}
}

func defaultContainer(c *corev1.Container, hostNetwork bool) {
	set(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	set(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	pull := corev1.PullIfNotPresent
	if name := c.Image[strings.LastIndex(c.Image, "/")+1:]; strings.HasSuffix(name, ":latest") || !strings.ContainsAny(name, ":@") {
		pull = corev1.PullAlways
	}
	set(&c.ImagePullPolicy, pull)
	for i := range c.Ports {
		set(&c.Ports[i].Protocol, corev1.ProtocolTCP)
		if hostNetwork {
			set(&c.Ports[i].HostPort, c.Ports[i].ContainerPort)
		}
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil && from.FieldRef != nil {
			set(&from.FieldRef.APIVersion, "v1")
		}
	}
	for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if probe == nil {
			continue
		}
		set(&probe.TimeoutSeconds, 1)
		set(&probe.PeriodSeconds, 10)
		set(&probe.SuccessThreshold, 1)
		set(&probe.FailureThreshold, 3)
		if probe.HTTPGet != nil {
			set(&probe.HTTPGet.Path, "/")
			set(&probe.HTTPGet.Scheme, corev1.URISchemeHTTP)
		}
	}
}

// requestLimits requests what is limited.
func requestLimits(r *corev1.ResourceRequirements) {
	for name, limit := range r.Limits {
		if r.Requests == nil {
			r.Requests = corev1.ResourceList{}
		}
		if _, requested := r.Requests[name]; !requested {
			r.Requests[name] = limit.DeepCopy()
		}
	}
}

func defaultVolume(v *corev1.VolumeSource) {
	switch {
	case v.HostPath != nil:
		setPointer(&v.HostPath.Type, corev1.HostPathUnset)
	case v.ConfigMap != nil:
		setPointer(&v.ConfigMap.DefaultMode, corev1.ConfigMapVolumeSourceDefaultMode)
	case v.Secret != nil:
		setPointer(&v.Secret.DefaultMode, corev1.SecretVolumeSourceDefaultMode)
	case v.DownwardAPI != nil:
		setPointer(&v.DownwardAPI.DefaultMode, corev1.DownwardAPIVolumeSourceDefaultMode)
	case v.Projected != nil:
		setPointer(&v.Projected.DefaultMode, corev1.ProjectedVolumeSourceDefaultMode)
	}
}
