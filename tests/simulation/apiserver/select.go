// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package apiserver

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// selectable are the fields that field selectors can have, beside the name and the namespace.
var selectable = map[runtime.Object][]string{
	&corev1.Pod{}:       {"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork", "status.phase", "status.nominatedNodeName"},
	&corev1.Node{}:      {"spec.unschedulable"},
	&corev1.Secret{}:    {"type"},
	&corev1.Namespace{}: {"status.phase"},
	&corev1.Event{}: {
		"involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid", "involvedObject.apiVersion",
		"involvedObject.resourceVersion", "involvedObject.fieldPath", "reason", "reportingComponent", "source", "type",
	},
}

func addSelectableFields(s *runtime.Scheme) {
	for o, extra := range selectable {
		known, _, err := s.ObjectKinds(o)
		if err != nil {
			panic(err) // they are in the scheme
		}
		err = s.AddFieldLabelConversionFunc(known[0], func(label, value string) (string, string, error) {
			if label == "metadata.name" || label == "metadata.namespace" || slices.Contains(extra, label) {
				return label, value, nil
			}
			return "", "", fmt.Errorf("field label not supported: %s", label)
		})
		if err != nil {
			panic(err)
		}
	}
}

// attributes returns what selectors match in an object of Kubernetes.
func attributes(o runtime.Object) (labels.Set, fields.Set, error) {
	m, err := meta.Accessor(o)
	if err != nil {
		return nil, nil, fmt.Errorf("select %T: %w", o, err)
	}
	set := fields.Set{"metadata.name": m.GetName()}
	if m.GetNamespace() != "" {
		set["metadata.namespace"] = m.GetNamespace()
	}
	switch o := o.(type) {
	case *corev1.Pod: // the frequent one
		set["spec.nodeName"], set["status.phase"] = o.Spec.NodeName, string(o.Status.Phase)
		set["spec.restartPolicy"], set["spec.schedulerName"] = string(o.Spec.RestartPolicy), o.Spec.SchedulerName
		set["spec.serviceAccountName"], set["spec.hostNetwork"] = o.Spec.ServiceAccountName, fmt.Sprint(o.Spec.HostNetwork)
		set["status.nominatedNodeName"] = o.Status.NominatedNodeName
	case *corev1.Node, *corev1.Secret, *corev1.Namespace, *corev1.Event:
		content := toUnstructured(o).Object
		for like, extra := range selectable {
			if fmt.Sprintf("%T", like) != fmt.Sprintf("%T", o) {
				continue
			}
			for _, name := range extra {
				value, _, _ := unstructured.NestedFieldNoCopy(content, strings.Split(name, ".")...)
				set[name] = text(value)
			}
		}
	}
	return m.GetLabels(), set, nil
}

func text(value any) string {
	if value == nil {
		return ""
	}
	return fmt.Sprint(value)
}
