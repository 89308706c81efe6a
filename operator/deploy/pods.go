// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package deploy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

// parseNames parses names of objects that are separated by commas. It returns each name once, because the API server
// refuses pods that list a Secret twice.
func parseNames(v string) ([]string, error) {
	var names []string
	for name := range strings.SplitSeq(v, ",") {
		name = strings.TrimSpace(name)
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			return nil, fmt.Errorf("%q is not a valid name: %s", name, strings.Join(problems, ", "))
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// parseNamespaces parses names of namespaces that are separated by commas, or "*" for all. It returns them without
// spaces.
func parseNamespaces(v string) (string, error) {
	if v == "*" {
		return v, nil
	}
	names, err := parseNames(v)
	return strings.Join(names, ","), err
}

// parseLabels parses labels as key=value, separated by commas.
func parseLabels(v string) (map[string]string, error) {
	set, err := labels.ConvertSelectorToLabelsMap(v)
	if err != nil {
		return nil, fmt.Errorf("%q is not a list of key=value, separated by commas: %w", v, err)
	}
	if system, ok := set[corev1.LabelOSStable]; ok && system != "linux" {
		return nil, fmt.Errorf("%s must be linux", corev1.LabelOSStable)
	}
	return set, nil
}

// parseTolerations parses a list with the syntax of a pod's tolerations. It validates them, because the API server
// would otherwise refuse the whole DaemonSet.
func parseTolerations(v string) ([]corev1.Toleration, error) {
	var tolerations []corev1.Toleration
	if err := yaml.UnmarshalStrict([]byte(v), &tolerations); err != nil {
		return nil, fmt.Errorf("the value is not a list of tolerations: %w", err)
	}
	var errs []error
	for i, t := range tolerations {
		errs = append(errs,
			checkOneOf(string(t.Operator), "", string(corev1.TolerationOpExists), string(corev1.TolerationOpEqual)),
			checkOneOf(string(t.Effect), "", string(corev1.TaintEffectNoSchedule), string(corev1.TaintEffectPreferNoSchedule), string(corev1.TaintEffectNoExecute)))
		if t.Key == "" && t.Operator != corev1.TolerationOpExists {
			errs = append(errs, fmt.Errorf("toleration %d: the operator must be %s if the key is empty", i, corev1.TolerationOpExists))
		}
		if t.Operator == corev1.TolerationOpExists && t.Value != "" {
			errs = append(errs, fmt.Errorf("toleration %d: the value must be empty if the operator is %s", i, corev1.TolerationOpExists))
		}
		if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
			errs = append(errs, fmt.Errorf("toleration %d: the effect must be %s if tolerationSeconds is set", i, corev1.TaintEffectNoExecute))
		}
		if problems := validation.IsQualifiedName(t.Key); t.Key != "" && len(problems) > 0 {
			errs = append(errs, fmt.Errorf("toleration %d: %q is not a valid key: %s", i, t.Key, strings.Join(problems, ", ")))
		}
		if problems := validation.IsValidLabelValue(t.Value); len(problems) > 0 {
			errs = append(errs, fmt.Errorf("toleration %d: %q is not a valid value: %s", i, t.Value, strings.Join(problems, ", ")))
		}
	}
	return tolerations, errors.Join(errs...)
}

// parseResources parses requests and limits, by container.
func parseResources(v string) (map[string]corev1.ResourceRequirements, error) {
	var resources map[string]corev1.ResourceRequirements
	if err := yaml.UnmarshalStrict([]byte(v), &resources); err != nil {
		return nil, fmt.Errorf("the value is not a map of containers to requests and limits: %w", err)
	}
	var errs []error
	for container, r := range resources {
		if !slices.Contains(ContainerNames, container) {
			errs = append(errs, fmt.Errorf("%q is not one of the containers %s", container, strings.Join(ContainerNames, ", ")))
		}
		if len(r.Claims) > 0 {
			errs = append(errs, fmt.Errorf("%s: claims are not supported", container))
		}
		errs = append(errs, checkQuantities(container, r.Requests), checkQuantities(container, r.Limits))
		for name, request := range r.Requests {
			if limit, ok := r.Limits[name]; ok && limit.Cmp(request) < 0 {
				errs = append(errs, fmt.Errorf("%s: the limit of %s is below the request", container, name))
			}
		}
	}
	return resources, errors.Join(errs...)
}

// nativeResources are the resources without a domain that a container can have, apart from huge pages.
var nativeResources = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}

func checkQuantities(container string, quantities corev1.ResourceList) error {
	var errs []error
	for name, quantity := range quantities {
		qualified := strings.Contains(string(name), "/") && len(validation.IsQualifiedName(string(name))) == 0
		if !qualified && !slices.Contains(nativeResources, name) && !strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			errs = append(errs, fmt.Errorf("%s: %q is not a resource such as cpu or memory", container, name))
		}
		if quantity.Sign() < 0 {
			errs = append(errs, fmt.Errorf("%s: %s is negative", container, name))
		}
	}
	return errors.Join(errs...)
}
