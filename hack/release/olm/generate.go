// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package olm

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	scorecard "github.com/operator-framework/api/pkg/apis/scorecard/v1alpha3"
	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// The annotations of a ClusterServiceVersion that are generated.
const (
	annotationExamples          = "alm-examples"
	annotationInternalObjects   = "operators.operatorframework.io/internal-objects"
	annotationContainerImage    = "containerImage"
	annotationCreatedAt         = "createdAt"
	annotationSkipRange         = "olm.skipRange"
	annotationNamespace         = "operatorframework.io/suggested-namespace"
	annotationNamespaceTemplate = "operatorframework.io/suggested-namespace-template"
	labelArchitecture           = "operatorframework.io/arch."
	labelSystem                 = "operatorframework.io/os."
	supported                   = "supported"
)

// notInBundles are the kinds that OLM doesn't create, or not everywhere, and how they are
// installed instead.
var notInBundles = map[string]string{
	// OLM doesn't install a bundle if a kind doesn't exist. These are Prometheus' kinds.
	"PodMonitor":     "to be applied beside the bundle: config/prometheus/objects",
	"PrometheusRule": "to be applied beside the bundle: config/prometheus/objects",
	"ServiceMonitor": "to be applied beside the bundle: config/prometheus/objects",

	"ValidatingAdmissionPolicy":        "to be applied beside the bundle: config/admission",
	"ValidatingAdmissionPolicyBinding": "to be applied beside the bundle: config/admission",
}

// supportedKinds are the kinds that OLM creates as they are in a bundle.
var supportedKinds = map[string]bool{
	"ConfigMap":             true,
	"ConsoleYAMLSample":     true,
	"PodDisruptionBudget":   true,
	"PriorityClass":         true,
	"Secret":                true,
	"Service":               true,
	"VerticalPodAutoscaler": true,
}

// Options are the parts of a bundle that don't come from the manifests.
type Options struct {
	Version        string
	Replaces       string   // the name of the previous version
	SkipRange      string   // the versions that can be upgraded directly to this one
	Channels       []string // the channels in which it is published
	DefaultChannel string
	CreatedAt      string // empty if the bundle must not depend on the time
}

// Generate creates the bundle from the project's manifests. These include a
// ClusterServiceVersion with the manually written parts, the scorecard's configuration, and
// everything that is installed.
func Generate(manifests, samples []unstructured.Unstructured, o Options) (*Bundle, error) {
	in, err := sortOut(manifests)
	if err != nil {
		return nil, err
	}
	b := &Bundle{CSV: in.csv, CRDs: in.crds, Scorecard: in.scorecard, Objects: in.objects}
	name, _, _ := strings.Cut(b.CSV.Name, ".")
	version, err := o.version(name)
	if err != nil {
		return nil, err
	}
	b.CSV.Name = name + ".v" + o.Version
	b.CSV.Spec.Version.Version = version
	b.CSV.Spec.Replaces = o.Replaces
	if len(in.deployment.Spec.Template.Spec.Containers) == 0 {
		return nil, fmt.Errorf("the Deployment %s has no containers", in.deployment.Name)
	}
	if err := b.own(); err != nil {
		return nil, err
	}
	if err := b.install(in); err != nil {
		return nil, err
	}
	if err := b.annotate(in, samples, o); err != nil {
		return nil, err
	}
	b.Annotations = map[string]string{
		annotationMediaType:      mediaType,
		annotationManifests:      manifestsDir,
		annotationMetadata:       metadataDir,
		annotationPackage:        name,
		annotationChannels:       strings.Join(o.Channels, ","),
		annotationDefaultChannel: o.DefaultChannel,
		annotationScorecardMedia: mediaTypeScorecard,
		annotationScorecard:      scorecardDir,
	}
	return b, nil
}

// version decodes the version. It returns an error if the other options contradict it, or each other: neither the
// validators of a bundle nor OLM before an upgrade notice that.
func (o *Options) version(name string) (semver.Version, error) {
	version, err := semver.Parse(o.Version)
	if err != nil {
		return version, fmt.Errorf("version %q: %w", o.Version, err)
	}
	if o.Replaces != "" {
		former, err := semver.Parse(strings.TrimPrefix(o.Replaces, name+".v"))
		if err != nil || former.GTE(version) {
			return version, fmt.Errorf("%s.v%s can't replace %s, which isn't a former version", name, version, o.Replaces)
		}
	}
	if _, err := semver.ParseRange(o.SkipRange); o.SkipRange != "" && err != nil {
		return version, fmt.Errorf("versions that are skipped, %q: %w", o.SkipRange, err)
	}
	if !slices.Contains(o.Channels, o.DefaultChannel) {
		return version, fmt.Errorf("the default channel %q isn't among %q", o.DefaultChannel, o.Channels)
	}
	return version, nil
}

// input contains the manifests by their use.
type input struct {
	csv        v1alpha1.ClusterServiceVersion
	scorecard  scorecard.Configuration
	crds       []apiextensionsv1.CustomResourceDefinition
	deployment appsv1.Deployment
	namespace  corev1.Namespace
	access     access
	objects    []unstructured.Unstructured
}

// sortOut decodes manifests that become parts of other objects, and refuses unexpected kinds.
func sortOut(manifests []unstructured.Unstructured) (*input, error) {
	in := &input{}
	singles := map[string]any{
		v1alpha1.ClusterServiceVersionKind: &in.csv,
		"Configuration":                    &in.scorecard,
		"Deployment":                       &in.deployment,
		"Namespace":                        &in.namespace,
	}
	found := map[string]int{}
	for _, object := range manifests {
		kind := object.GetKind()
		found[kind]++
		var err error
		switch {
		case singles[kind] != nil:
			err = decode(object, singles[kind])
		case kind == "CustomResourceDefinition":
			err = into(&in.crds, object)
		case in.access.takes(kind):
			err = in.access.add(object)
		case notInBundles[kind] != "":
		case supportedKinds[kind]:
			// OLM creates it in the namespace in which the operator is installed.
			object.SetNamespace("")
			in.objects = append(in.objects, object)
		default:
			err = errors.New("OLM doesn't install this kind")
		}
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", kind, object.GetName(), err)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(singles)) {
		if found[kind] != 1 {
			return nil, fmt.Errorf("the manifests have %d objects of kind %s, not one", found[kind], kind)
		}
	}
	slices.SortFunc(in.crds, func(a, b apiextensionsv1.CustomResourceDefinition) int { return strings.Compare(a.Name, b.Name) })
	return in, nil
}

// own adds the descriptions of the operator's APIs.
func (b *Bundle) own() error {
	for i := range b.CRDs {
		owned, err := Describe(&b.CRDs[i])
		if err != nil {
			return err
		}
		b.CSV.Spec.CustomResourceDefinitions.Owned = append(b.CSV.Spec.CustomResourceDefinitions.Owned, owned)
	}
	return nil
}

// install adds what OLM deploys, and the images.
func (b *Bundle) install(in *input) error {
	cluster, namespaced, others, err := in.access.permissions(in.namespace.Name)
	if err != nil {
		return err
	}
	for _, object := range others {
		object.SetNamespace("")
		b.Objects = append(b.Objects, object)
	}
	b.CSV.Spec.InstallStrategy = v1alpha1.NamedInstallStrategy{
		StrategyName: v1alpha1.InstallStrategyNameDeployment,
		StrategySpec: v1alpha1.StrategyDetailsDeployment{
			ClusterPermissions: cluster,
			Permissions:        namespaced,
			DeploymentSpecs:    []v1alpha1.StrategyDeploymentSpec{{Name: in.deployment.Name, Label: in.deployment.Labels, Spec: in.deployment.Spec}},
		},
	}
	images := b.images()
	for _, name := range slices.Sorted(maps.Keys(images)) {
		b.CSV.Spec.RelatedImages = append(b.CSV.Spec.RelatedImages, v1alpha1.RelatedImage{Name: name, Image: images[name]})
	}
	return nil
}

// images returns the images in the Deployments, by container, and those in the operator's
// ConfigMap, by key.
func (b *Bundle) images() map[string]string {
	images := map[string]string{}
	for _, deployment := range b.CSV.Spec.InstallStrategy.StrategySpec.DeploymentSpecs {
		for _, container := range deployment.Spec.Template.Spec.Containers {
			images[container.Name] = container.Image
		}
	}
	for _, object := range b.Objects {
		if object.GetKind() != "ConfigMap" {
			continue
		}
		data, _, err := unstructured.NestedStringMap(object.Object, "data")
		if err != nil {
			continue
		}
		for key, value := range data {
			if name, isImage := strings.CutSuffix(key, ".image"); isImage {
				images[strings.ReplaceAll(name, ".", "-")] = value
			}
		}
	}
	return images
}

// annotate adds what consoles display and filter by.
func (b *Bundle) annotate(in *input, samples []unstructured.Unstructured, o Options) error {
	examples, err := b.examples(samples)
	if err != nil {
		return err
	}
	var reports []string
	for _, owned := range b.CSV.Spec.CustomResourceDefinitions.Owned {
		if isReport(owned.Kind) {
			reports = append(reports, owned.Name)
		}
	}
	internal, err := json.Marshal(reports)
	if err != nil {
		return err
	}
	namespace, err := json.MarshalIndent(map[string]any{
		"apiVersion": "v1",
		"kind":       "Namespace",
		"metadata":   map[string]any{"name": in.namespace.Name, "labels": in.namespace.Labels, "annotations": in.namespace.Annotations},
	}, "", "  ")
	if err != nil {
		return err
	}
	metav1.SetMetaDataAnnotation(&b.CSV.ObjectMeta, annotationExamples, examples)
	metav1.SetMetaDataAnnotation(&b.CSV.ObjectMeta, annotationInternalObjects, string(internal))
	metav1.SetMetaDataAnnotation(&b.CSV.ObjectMeta, annotationNamespace, in.namespace.Name)
	metav1.SetMetaDataAnnotation(&b.CSV.ObjectMeta, annotationNamespaceTemplate, string(namespace))
	metav1.SetMetaDataAnnotation(&b.CSV.ObjectMeta, annotationContainerImage, in.deployment.Spec.Template.Spec.Containers[0].Image)
	if o.SkipRange != "" {
		metav1.SetMetaDataAnnotation(&b.CSV.ObjectMeta, annotationSkipRange, o.SkipRange)
	}
	if o.CreatedAt != "" {
		metav1.SetMetaDataAnnotation(&b.CSV.ObjectMeta, annotationCreatedAt, o.CreatedAt)
	}
	supports := architectures(&in.deployment.Spec)
	if len(supports) == 0 {
		return fmt.Errorf("the Deployment %s doesn't select the architectures of its nodes", in.deployment.Name)
	}
	for _, architecture := range supports {
		metav1.SetMetaDataLabel(&b.CSV.ObjectMeta, labelArchitecture+architecture, supported)
	}
	metav1.SetMetaDataLabel(&b.CSV.ObjectMeta, labelSystem+"linux", supported)
	return nil
}

// examples returns the samples of the owned kinds, as JSON. It leaves out other objects that
// the samples need.
func (b *Bundle) examples(samples []unstructured.Unstructured) (string, error) {
	var examples []map[string]any
	for _, sample := range samples {
		for _, crd := range b.CRDs {
			if sample.GroupVersionKind().Group == crd.Spec.Group && sample.GetKind() == crd.Spec.Names.Kind {
				examples = append(examples, sample.Object)
			}
		}
	}
	content, err := json.MarshalIndent(examples, "", "  ")
	return string(content), err
}

// architectures returns the architectures of the nodes that the operator can run on.
func architectures(spec *appsv1.DeploymentSpec) []string {
	affinity := spec.Template.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	for _, term := range affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, expression := range term.MatchExpressions {
			if expression.Key == corev1.LabelArchStable && expression.Operator == corev1.NodeSelectorOpIn {
				return expression.Values
			}
		}
	}
	return nil
}

// Objects reads a stream of manifests.
func Objects(stream io.Reader) ([]unstructured.Unstructured, error) {
	var objects []unstructured.Unstructured
	documents := utilyaml.NewYAMLReader(bufio.NewReader(stream))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read manifests: %w", err)
		}
		var object unstructured.Unstructured
		if err := yaml.UnmarshalStrict(document, &object.Object); err != nil {
			return nil, fmt.Errorf("decode manifest %d: %w", len(objects)+1, err)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// decode decodes an object, and refuses unknown fields.
func decode(object unstructured.Unstructured, to any) error {
	content, err := yaml.Marshal(object.Object)
	if err != nil {
		return err
	}
	return yaml.UnmarshalStrict(content, to)
}

// into decodes an object and appends it.
func into[T any](list *[]T, object unstructured.Unstructured) error {
	var item T
	if err := decode(object, &item); err != nil {
		return err
	}
	*list = append(*list, item)
	return nil
}

func describeObject(object unstructured.Unstructured) string {
	return object.GetKind() + " " + object.GetName()
}
