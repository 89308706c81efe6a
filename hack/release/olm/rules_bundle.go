// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package olm

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
)

// maxSize is the maximum size of the ConfigMap into which OLM unpacks a bundle.
const maxSize = 1 << 20

// supportedKinds are the kinds that OLM creates from a bundle.
var supportedKinds = map[string]bool{
	kindCSV:                 true,
	kindCRD:                 true,
	"ClusterRole":           true,
	"ClusterRoleBinding":    true,
	"ConfigMap":             true,
	"ConsoleYAMLSample":     true,
	"PodDisruptionBudget":   true,
	"PriorityClass":         true,
	"PrometheusRule":        true,
	"Role":                  true,
	"RoleBinding":           true,
	"Secret":                true,
	"Service":               true,
	"ServiceAccount":        true,
	"ServiceMonitor":        true,
	"VerticalPodAutoscaler": true,
}

// servedGroups are the API versions of these kinds that have no planned removal.
var servedGroups = map[string]bool{
	"v1":                            true,
	"autoscaling.k8s.io/v1":         true,
	"console.openshift.io/v1":       true,
	"monitoring.coreos.com/v1":      true,
	"policy/v1":                     true,
	"rbac.authorization.k8s.io/v1":  true,
	"scheduling.k8s.io/v1":          true,
	"apiextensions.k8s.io/v1":       true,
	"operators.coreos.com/v1alpha1": true,
}

func checkMediaType(b *Bundle) []string {
	var p problems
	for key, want := range map[string]string{
		annotationMediaType: mediaType, annotationManifests: manifestsDir, annotationMetadata: metadataDir,
	} {
		p.unless(b.Annotations[key] == want, "%s is %q, not %q", key, b.Annotations[key], want)
	}
	return p
}

func checkPackage(b *Bundle) []string {
	return validation.IsDNS1123Label(b.Package())
}

func checkChannels(b *Bundle) []string {
	var p problems
	p.unless(len(b.Channels()) > 0, "there is none")
	for _, channel := range b.Channels() {
		p.unless(strings.TrimSpace(channel) == channel && len(validation.IsDNS1123Subdomain(channel)) == 0, "%q is no name", channel)
	}
	p.unless(slices.Contains(b.Channels(), b.Annotations[annotationDefaultChannel]),
		"the default channel %q isn't among %q", b.Annotations[annotationDefaultChannel], b.Channels())
	return p
}

func checkChannelNames(b *Bundle) []string {
	var p problems
	for _, channel := range b.Channels() {
		p.unless(slices.ContainsFunc([]string{"candidate", "fast", "stable"}, func(name string) bool { return strings.HasPrefix(channel, name) }),
			"%q is none of these", channel)
	}
	return p
}

func checkLabels(b *Bundle) []string {
	var p problems
	labels := map[string]string{}
	for line := range strings.Lines(b.Dockerfile) {
		if label, isLabel := strings.CutPrefix(strings.TrimSpace(line), "LABEL "); isLabel {
			key, value, _ := strings.Cut(label, "=")
			labels[key] = value
		}
	}
	for _, key := range slices.Sorted(maps.Keys(b.Annotations)) {
		p.unless(labels[key] == b.Annotations[key], "the label %s is %q, the annotation %q", key, labels[key], b.Annotations[key])
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		p.unless(b.Annotations[key] != "", "the label %s is no annotation", key)
	}
	return p
}

func checkImage(b *Bundle) []string {
	var p problems
	var copies []string
	for line := range strings.Lines(b.Dockerfile) {
		instruction, arguments, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch instruction {
		case "FROM":
			p.unless(arguments == "scratch", "it is made from %s", arguments)
		case "COPY":
			_, to, _ := strings.Cut(arguments, " ")
			copies = append(copies, to)
		case "LABEL", "#", "":
		default:
			p.addf("it has the instruction %s", instruction)
		}
	}
	slices.Sort(copies)
	want := []string{"/" + manifestsDir, "/" + metadataDir, "/" + scorecardDir}
	p.unless(slices.Equal(copies, want), "it has %q, not %q", copies, want)
	return p
}

func checkKinds(b *Bundle) []string {
	var p problems
	for _, object := range b.Objects {
		p.unless(supportedKinds[object.GetKind()], "%s isn't", describeObject(object))
	}
	return p
}

func checkAPIVersions(b *Bundle) []string {
	var p problems
	for _, object := range b.Objects {
		p.unless(servedGroups[object.GetAPIVersion()], "%s is of %s", describeObject(object), object.GetAPIVersion())
	}
	for _, crd := range b.CRDs {
		p.unless(servedGroups[crd.APIVersion], "%s is of %s", crd.Name, crd.APIVersion)
	}
	return p
}

func checkNamespaces(b *Bundle) []string {
	var p problems
	p.unless(b.CSV.Namespace == "", "the ClusterServiceVersion is in %s", b.CSV.Namespace)
	for _, object := range b.Objects {
		p.unless(object.GetNamespace() == "", "%s is in %s", describeObject(object), object.GetNamespace())
	}
	return p
}

func describeObject(object unstructured.Unstructured) string {
	return object.GetKind() + " " + object.GetName()
}

func checkSize(b *Bundle) []string {
	var p problems
	p.unless(b.Size < maxSize, "they have %d bytes compressed, of %d", b.Size, maxSize)
	return p
}

func checkScorecard(b *Bundle) []string {
	var p problems
	s := b.Scorecard
	p.unless(b.Annotations[annotationScorecardMedia] == mediaTypeScorecard && b.Annotations[annotationScorecard] == scorecardDir,
		"the annotations name %q in %q", b.Annotations[annotationScorecardMedia], b.Annotations[annotationScorecard])
	p.unless(s.APIVersion == "scorecard.operatorframework.io/v1alpha3" && s.Kind == "Configuration" && s.Name == "config",
		"it is %s %s named %q", s.APIVersion, s.Kind, s.Name)
	tests := 0
	for _, stage := range s.Stages {
		for _, test := range stage.Tests {
			tests++
			p.unless(isPinned(test.Image), "the image %q has no tag", test.Image)
			p.unless(len(test.Entrypoint) > 0, "a test has no command")
			p.unless(test.Labels["suite"] != "" && test.Labels["test"] != "", "test %q has no suite and name", test.Entrypoint)
		}
	}
	p.unless(tests > 0, "there are no tests")
	return p
}
