// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package olm

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The committed bundle. make verify checks that it is what make bundle writes.
const (
	committed           = "../../../bundle"
	committedDockerfile = "../../../bundle.Dockerfile"
)

func readCommitted(t *testing.T) *Bundle {
	t.Helper()
	b, err := Read(committed, committedDockerfile)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// clone returns a copy of a bundle that can be changed.
func clone(t *testing.T, b *Bundle) *Bundle {
	t.Helper()
	c := *b
	for from, to := range map[any]any{&b.CSV: &c.CSV, &b.Scorecard: &c.Scorecard} {
		content, err := json.Marshal(from)
		if err != nil {
			t.Fatal(err)
		}
		reflect.ValueOf(to).Elem().SetZero()
		if err := json.Unmarshal(content, to); err != nil {
			t.Fatal(err)
		}
	}
	c.CRDs, c.Objects, c.Annotations = nil, nil, maps.Clone(b.Annotations)
	for _, crd := range b.CRDs {
		c.CRDs = append(c.CRDs, *crd.DeepCopy())
	}
	for _, object := range b.Objects {
		c.Objects = append(c.Objects, *object.DeepCopy())
	}
	return &c
}

func TestBundle_KeepsEachRule(t *testing.T) {
	b := readCommitted(t)
	for _, rule := range Rules {
		t.Run(rule.Name, func(t *testing.T) {
			for _, problem := range rule.Check(b) {
				t.Error(problem)
			}
		})
	}
	if len(b.CRDs) != 18 {
		t.Errorf("%d CustomResourceDefinitions, not 18", len(b.CRDs))
	}
}

// breaks contains ways to violate each rule, by the rule's name.
var breaks = map[string][]func(*Bundle){
	"the media type is registry+v1, in the directories that it names": {
		func(b *Bundle) { b.Annotations[annotationMediaType] = "helm" },
		func(b *Bundle) { delete(b.Annotations, annotationManifests) },
	},
	"the package has a name that is valid in Kubernetes": {
		func(b *Bundle) { b.Annotations[annotationPackage] = "bpfman operator" },
	},
	"there is a channel, and the default channel is one of them": {
		func(b *Bundle) { b.Annotations[annotationChannels] = "" },
		func(b *Bundle) { b.Annotations[annotationChannels] = "candidate, fast" },
		func(b *Bundle) { b.Annotations[annotationDefaultChannel] = "fast" },
	},
	"channels are named candidate, fast or stable": {
		func(b *Bundle) { b.Annotations[annotationChannels] = "candidate,alpha" },
	},
	"the image has the annotations as labels": {
		func(b *Bundle) { b.Annotations[annotationChannels] = "candidate,fast" },
		func(b *Bundle) { b.Dockerfile += "LABEL name=bpfman\n" },
	},
	"the image has nothing but the bundle's directories": {
		func(b *Bundle) { b.Dockerfile = strings.Replace(b.Dockerfile, "scratch", "debian", 1) },
		func(b *Bundle) { b.Dockerfile += "RUN true\n" },
		func(b *Bundle) { b.Dockerfile += "COPY hack /hack/\n" },
	},
	"all kinds are ones that OLM installs": {
		func(b *Bundle) {
			b.Objects = append(b.Objects, object("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"))
		},
	},
	"all APIs are of a version that Kubernetes serves for good": {
		func(b *Bundle) { b.Objects = append(b.Objects, object("policy/v1beta1", "PodDisruptionBudget")) },
		func(b *Bundle) { b.CRDs[0].APIVersion = "apiextensions.k8s.io/v1beta1" },
	},
	"no object has a namespace: OLM gives it": {
		func(b *Bundle) { b.Objects[0].SetNamespace("bpfman") },
		func(b *Bundle) { b.CSV.Namespace = "bpfman" },
	},
	"all manifests fit into what OLM unpacks": {func(b *Bundle) { b.Size = maxSize }},
	"the scorecard's configuration is found, and each test has an image, a command and a suite": {
		func(b *Bundle) { delete(b.Annotations, annotationScorecard) },
		func(b *Bundle) { b.Scorecard.Kind = "Config" },
		func(b *Bundle) { b.Scorecard.Stages = nil },
		func(b *Bundle) { b.Scorecard.Stages[0].Tests[0].Image = "quay.io/operator-framework/scorecard-test" },
		func(b *Bundle) { b.Scorecard.Stages[0].Tests[0].Entrypoint = nil },
		func(b *Bundle) { delete(b.Scorecard.Stages[0].Tests[0].Labels, "suite") },
	},
	"it is a ClusterServiceVersion of v1alpha1": {func(b *Bundle) { b.CSV.APIVersion = "operators.coreos.com/v1" }},
	"its name is the package's with its version": {
		func(b *Bundle) { b.CSV.Name = "bpfman-operator" },
		func(b *Bundle) { b.CSV.Spec.Version = "9.9.9" },
	},
	"its version is a semantic one": {
		func(b *Bundle) { b.CSV.Spec.Version = "0.0.0" },
		func(b *Bundle) { b.CSV.Spec.Version = "0.6" },
		func(b *Bundle) { b.CSV.Spec.Version = "v0.6.0" },
	},
	"what it replaces is a former version of the package": {
		func(b *Bundle) { b.CSV.Spec.Replaces = b.CSV.Name },
		func(b *Bundle) { b.CSV.Spec.Replaces = "bpfman.v0.1.0" },
	},
	"the least version of Kubernetes is a semantic one": {
		func(b *Bundle) { b.CSV.Spec.MinKubeVersion = "" },
		func(b *Bundle) { b.CSV.Spec.MinKubeVersion = "1.26" },
	},
	"it has a display name, a description, keywords and a maturity": {
		func(b *Bundle) { b.CSV.Spec.DisplayName = "" },
		func(b *Bundle) { b.CSV.Spec.Description = "" },
		func(b *Bundle) { b.CSV.Spec.Keywords = nil },
		func(b *Bundle) { b.CSV.Spec.Maturity = "green" },
	},
	"the provider has a name":                   {func(b *Bundle) { b.CSV.Spec.Provider.Name = "" }},
	"maintainers have names and mail addresses": {func(b *Bundle) { b.CSV.Spec.Maintainers = []Maintainer{{Name: "someone", Email: "nowhere"}} }},
	"links have names and addresses": {
		func(b *Bundle) { b.CSV.Spec.Links[0].URL = "bpfman.io" },
		func(b *Bundle) { b.CSV.Spec.Links[0].Name = "" },
	},
	"there is one icon, of a picture's type": {
		func(b *Bundle) { b.CSV.Spec.Icon = nil },
		func(b *Bundle) { b.CSV.Spec.Icon[0].MediaType = "text/plain" },
		func(b *Bundle) { b.CSV.Spec.Icon[0].Data = "<svg>" },
	},
	"capabilities are a level that is defined": {func(b *Bundle) { b.CSV.Annotations["capabilities"] = "Everything" }},
	"categories are ones that are defined":     {func(b *Bundle) { b.CSV.Annotations["categories"] = "Networking,eBPF" }},
	"each install mode is there once, and one is supported": {
		func(b *Bundle) { b.CSV.Spec.InstallModes = b.CSV.Spec.InstallModes[:3] },
		func(b *Bundle) { b.CSV.Spec.InstallModes[0].Type = b.CSV.Spec.InstallModes[1].Type },
		func(b *Bundle) {
			for i := range b.CSV.Spec.InstallModes {
				b.CSV.Spec.InstallModes[i].Supported = false
			}
		},
	},
	"systems and architectures are those that the operator may run on": {
		func(b *Bundle) { delete(b.CSV.Labels, labelSystem+"linux") },
		func(b *Bundle) { delete(b.CSV.Labels, labelArchitecture+"s390x") },
		func(b *Bundle) { b.CSV.Labels[labelArchitecture+"riscv64"] = supported },
		func(b *Bundle) { b.CSV.Spec.Install.Spec.Deployments[0].Spec.Template.Spec.Affinity = nil },
	},
	"the suggested namespace is the one of its template": {
		func(b *Bundle) { b.CSV.Annotations[annotationNamespace] = "default" },
		func(b *Bundle) { b.CSV.Annotations[annotationNamespaceTemplate] = "{" },
	},
	"it is installed by Deployments whose containers request resources": {
		func(b *Bundle) { b.CSV.Spec.Install.Spec.Deployments = nil },
		func(b *Bundle) { b.CSV.Spec.Install.Strategy = "helm" },
		func(b *Bundle) {
			b.CSV.Spec.Install.Spec.Deployments[0].Spec.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{}
		},
	},
	"Deployments run as ServiceAccounts that have permissions": {
		func(b *Bundle) {
			b.CSV.Spec.Install.Spec.Deployments[0].Spec.Template.Spec.ServiceAccountName = "default"
		},
	},
	"ServiceAccounts that OLM makes aren't in the bundle too": {
		func(b *Bundle) {
			account := object("v1", "ServiceAccount")
			account.SetName("bpfman-daemon")
			b.Objects = append(b.Objects, account)
		},
	},
	"no permission is for everything, or changes a cluster's own SecurityContextConstraints": {
		func(b *Bundle) { b.CSV.Spec.Install.Spec.ClusterPermissions[0].Rules[0].Verbs = []string{"*"} },
		func(b *Bundle) {
			rule := &b.CSV.Spec.Install.Spec.ClusterPermissions[0].Rules[0]
			rule.Resources, rule.ResourceNames, rule.Verbs = []string{"securitycontextconstraints"}, []string{"privileged"}, []string{"patch"}
		},
	},
	"all images are related images, each once, with a tag or digest": {
		func(b *Bundle) { b.CSV.Spec.RelatedImages = b.CSV.Spec.RelatedImages[1:] },
		func(b *Bundle) { b.CSV.Spec.RelatedImages[0].Image = "quay.io/bpfman/bpfman" },
		func(b *Bundle) { b.CSV.Spec.RelatedImages[0].Name = b.CSV.Spec.RelatedImages[1].Name },
		func(b *Bundle) { b.CSV.Annotations[annotationContainerImage] = "quay.io/bpfman/other:latest" },
	},
	"owned CustomResourceDefinitions are those of the bundle": {
		func(b *Bundle) { b.CRDs = b.CRDs[1:] },
		func(b *Bundle) {
			b.CSV.Spec.CustomResourceDefinitions.Owned = b.CSV.Spec.CustomResourceDefinitions.Owned[1:]
		},
		func(b *Bundle) { b.CSV.Spec.CustomResourceDefinitions.Owned[0].Version = "v1" },
		func(b *Bundle) { b.CRDs = append(b.CRDs, b.CRDs[0]) },
	},
	"CustomResourceDefinitions are valid": {
		func(b *Bundle) { b.CRDs[0].Spec.Names.Plural = "others" },
		func(b *Bundle) { b.CRDs[0].Spec.Versions[0].Schema.OpenAPIV3Schema.Type = "" },
	},
	"owned CustomResourceDefinitions have display names, descriptions and resources": {
		func(b *Bundle) { b.CSV.Spec.CustomResourceDefinitions.Owned[0].Description = "" },
		func(b *Bundle) { b.CSV.Spec.CustomResourceDefinitions.Owned[0].Resources = nil },
	},
	"described fields are in the schema": {
		func(b *Bundle) { b.CSV.Spec.CustomResourceDefinitions.Owned[0].SpecDescriptors[0].Path = "nothing" },
		func(b *Bundle) { b.CSV.Spec.CustomResourceDefinitions.Owned[0].StatusDescriptors = nil },
	},
	"examples are valid objects of owned kinds, and each kind that users write has one": {
		func(b *Bundle) { b.CSV.Annotations[annotationExamples] = "[]" },
		func(b *Bundle) { b.CSV.Annotations[annotationExamples] = "" },
		func(b *Bundle) { replaceInExamples(b, `"kind": "TcProgram"`, `"kind": "TcFilter"`) },
		func(b *Bundle) { replaceInExamples(b, `"direction": "ingress"`, `"direction": "sideways"`) },
	},
	"internal objects are owned": {
		func(b *Bundle) { b.CSV.Annotations[annotationInternalObjects] = `["others.bpfman.io"]` },
		func(b *Bundle) { b.CSV.Annotations[annotationInternalObjects] = "" },
	},
}

func replaceInExamples(b *Bundle, from, to string) {
	b.CSV.Annotations[annotationExamples] = strings.ReplaceAll(b.CSV.Annotations[annotationExamples], from, to)
}

func object(apiVersion, kind string) unstructured.Unstructured {
	var o unstructured.Unstructured
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetName("other")
	return o
}

func TestRules_TellWhatBreaksThem(t *testing.T) {
	unbroken := readCommitted(t)
	for _, rule := range Rules {
		t.Run(rule.Name, func(t *testing.T) {
			if len(breaks[rule.Name]) == 0 {
				t.Fatal("nothing breaks it")
			}
			for i, breakIt := range breaks[rule.Name] {
				b := clone(t, unbroken)
				breakIt(b)
				if len(rule.Check(b)) == 0 {
					t.Errorf("case %d isn't noticed", i)
				}
			}
		})
	}
	if len(breaks) != len(Rules) {
		t.Errorf("%d rules are broken, there are %d", len(breaks), len(Rules))
	}
}
