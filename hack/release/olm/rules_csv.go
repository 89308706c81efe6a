// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package olm

import (
	"encoding/base64"
	"encoding/json"
	"net/mail"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

var capabilities = []string{"Basic Install", "Seamless Upgrades", "Full Lifecycle", "Deep Insights", "Auto Pilot"}

var categories = []string{
	"AI/Machine Learning", "Application Runtime", "Big Data", "Cloud Provider", "Database", "Developer Tools", "Drivers and plugins",
	"Integration & Delivery", "Logging & Tracing", "Modernization & Migration", "Monitoring", "Networking", "Observability",
	"OpenShift Optional", "Security", "Storage", "Streaming & Messaging",
}

var pictures = []string{"image/gif", "image/jpeg", "image/png", "image/svg+xml"}

var installModes = []string{"AllNamespaces", "MultiNamespace", "OwnNamespace", "SingleNamespace"}

// builtInConstraints are SecurityContextConstraints that OpenShift itself needs.
var builtInConstraints = []string{
	"anyuid", "hostaccess", "hostmount-anyuid", "hostnetwork", "node-exporter", "nonroot", "privileged", "restricted", "restricted-v2",
}

func checkType(b *Bundle) []string {
	var p problems
	p.unless(b.CSV.APIVersion == "operators.coreos.com/v1alpha1" && b.CSV.Kind == kindCSV, "it is %s %s", b.CSV.APIVersion, b.CSV.Kind)
	return p
}

func checkName(b *Bundle) []string {
	var p problems
	p.unless(b.CSV.Name == b.Package()+".v"+b.CSV.Spec.Version, "it is %q", b.CSV.Name)
	return append(p, validation.IsDNS1123Subdomain(b.CSV.Name)...)
}

func checkVersion(b *Bundle) []string {
	var p problems
	p.unless(isVersion(b.CSV.Spec.Version) && b.CSV.Spec.Version != "0.0.0", "it is %q", b.CSV.Spec.Version)
	return p
}

func checkReplaces(b *Bundle) []string {
	var p problems
	if replaced := b.CSV.Spec.Replaces; replaced != "" {
		version, ofPackage := strings.CutPrefix(replaced, b.Package()+".v")
		p.unless(ofPackage && isBefore(version, b.CSV.Spec.Version), "it is %q", replaced)
	}
	return p
}

func checkMinKubeVersion(b *Bundle) []string {
	var p problems
	p.unless(isVersion(b.CSV.Spec.MinKubeVersion), "it is %q", b.CSV.Spec.MinKubeVersion)
	return p
}

func checkTexts(b *Bundle) []string {
	var p problems
	s := b.CSV.Spec
	p.unless(s.DisplayName != "", "no display name")
	p.unless(s.Description != "", "no description")
	p.unless(len(s.Keywords) > 0, "no keywords")
	p.unless(slices.Contains([]string{"planning", "pre-alpha", "alpha", "beta", "stable", "mature", "inactive", "deprecated"}, s.Maturity),
		"%q is no maturity", s.Maturity)
	return p
}

func checkProvider(b *Bundle) []string {
	var p problems
	p.unless(b.CSV.Spec.Provider.Name != "", "it has none")
	return p
}

func checkMaintainers(b *Bundle) []string {
	var p problems
	for _, m := range b.CSV.Spec.Maintainers {
		_, err := mail.ParseAddress(m.Email)
		p.unless(m.Name != "" && err == nil, "%q <%s>", m.Name, m.Email)
	}
	return p
}

func checkLinks(b *Bundle) []string {
	var p problems
	for _, link := range append([]Link{b.CSV.Spec.Provider}, b.CSV.Spec.Links...) {
		address, err := url.ParseRequestURI(link.URL)
		p.unless(link.Name != "" && err == nil && address.Host != "", "%q leads to %q", link.Name, link.URL)
	}
	return p
}

func checkIcon(b *Bundle) []string {
	var p problems
	p.unless(len(b.CSV.Spec.Icon) == 1, "there are %d", len(b.CSV.Spec.Icon))
	for _, icon := range b.CSV.Spec.Icon {
		content, err := base64.StdEncoding.DecodeString(icon.Data)
		p.unless(err == nil && len(content) > 0, "it isn't base64")
		p.unless(slices.Contains(pictures, icon.MediaType), "its type is %q", icon.MediaType)
	}
	return p
}

func checkCapabilities(b *Bundle) []string {
	var p problems
	p.unless(slices.Contains(capabilities, b.CSV.Annotations["capabilities"]), "%q isn't", b.CSV.Annotations["capabilities"])
	return p
}

func checkCategories(b *Bundle) []string {
	var p problems
	for category := range strings.SplitSeq(b.CSV.Annotations["categories"], ",") {
		p.unless(slices.Contains(categories, strings.TrimSpace(category)), "%q isn't", category)
	}
	return p
}

func checkInstallModes(b *Bundle) []string {
	var p problems
	var types []string
	anySupported := false
	for _, mode := range b.CSV.Spec.InstallModes {
		types = append(types, mode.Type)
		anySupported = anySupported || mode.Supported
	}
	slices.Sort(types)
	p.unless(slices.Equal(types, installModes), "they are %q", types)
	p.unless(anySupported, "none is supported")
	return p
}

func checkArchitectures(b *Bundle) []string {
	var p problems
	var labelled []string
	for label, value := range b.CSV.Labels {
		if architecture, isArchitecture := strings.CutPrefix(label, labelArchitecture); isArchitecture && value == supported {
			labelled = append(labelled, architecture)
		}
	}
	slices.Sort(labelled)
	p.unless(b.CSV.Labels[labelSystem+"linux"] == supported, "Linux isn't")
	for _, deployment := range b.CSV.Spec.Install.Spec.Deployments {
		runsOn := slices.Sorted(slices.Values(architectures(&deployment.Spec)))
		p.unless(len(runsOn) > 0 && slices.Equal(labelled, runsOn), "labelled are %q, %s runs on %q", labelled, deployment.Name, runsOn)
	}
	return p
}

func checkNamespaceTemplate(b *Bundle) []string {
	var p problems
	var template corev1.Namespace
	if err := yaml.UnmarshalStrict([]byte(b.CSV.Annotations[annotationNamespaceTemplate]), &template); err != nil {
		p.addf("the template: %v", err)
	}
	name := b.CSV.Annotations[annotationNamespace]
	p.unless(name != "" && template.Kind == "Namespace" && template.Name == name, "%q is suggested, %q the template's", name, template.Name)
	return p
}

func checkDeployments(b *Bundle) []string {
	var p problems
	install := b.CSV.Spec.Install
	p.unless(install.Strategy == "deployment" && len(install.Spec.Deployments) > 0, "it has %d by %q", len(install.Spec.Deployments), install.Strategy)
	for _, deployment := range install.Spec.Deployments {
		p.unless(len(validation.IsDNS1123Subdomain(deployment.Name)) == 0, "%q is no name", deployment.Name)
		for _, container := range deployment.Spec.Template.Spec.Containers {
			requests := container.Resources.Requests
			p.unless(!requests.Cpu().IsZero() && !requests.Memory().IsZero(), "%s of %s doesn't", container.Name, deployment.Name)
		}
	}
	return p
}

// permissions returns all permissions, in the cluster and in the namespace.
func (b *Bundle) permissions() []Permission {
	return slices.Concat(b.CSV.Spec.Install.Spec.ClusterPermissions, b.CSV.Spec.Install.Spec.Permissions)
}

func checkServiceAccounts(b *Bundle) []string {
	var p problems
	for _, deployment := range b.CSV.Spec.Install.Spec.Deployments {
		account := deployment.Spec.Template.Spec.ServiceAccountName
		p.unless(slices.ContainsFunc(b.permissions(), func(permission Permission) bool {
			return permission.ServiceAccountName == account && len(permission.Rules) > 0
		}), "%s runs as %q", deployment.Name, account)
	}
	return p
}

func checkMadeAccounts(b *Bundle) []string {
	var p problems
	for _, object := range b.Objects {
		p.unless(object.GetKind() != "ServiceAccount" || !slices.ContainsFunc(b.permissions(), func(permission Permission) bool {
			return permission.ServiceAccountName == object.GetName()
		}), "%s is", object.GetName())
	}
	return p
}

func checkPermissions(b *Bundle) []string {
	var p problems
	for _, permission := range b.permissions() {
		for _, rule := range permission.Rules {
			everything := slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs)
			p.unless(!slices.Contains(everything, rbacv1.VerbAll), "%s may %q %q of %q", permission.ServiceAccountName, rule.Verbs, rule.Resources, rule.APIGroups)
			p.unless(!changesConstraints(rule), "%s may %q %q", permission.ServiceAccountName, rule.Verbs, rule.ResourceNames)
		}
	}
	return p
}

func changesConstraints(rule rbacv1.PolicyRule) bool {
	has := func(list, wanted []string) bool {
		return slices.ContainsFunc(list, func(item string) bool { return slices.Contains(wanted, item) })
	}
	return has(rule.Resources, []string{"securitycontextconstraints"}) && has(rule.Verbs, []string{"update", "patch", "delete"}) &&
		(len(rule.ResourceNames) == 0 || has(rule.ResourceNames, builtInConstraints))
}

func checkRelatedImages(b *Bundle) []string {
	var p problems
	names := map[string]bool{}
	for _, related := range b.CSV.Spec.RelatedImages {
		p.unless(related.Name != "" && !names[related.Name], "the name %q is there twice", related.Name)
		p.unless(isPinned(related.Image), "%s is %q", related.Name, related.Image)
		names[related.Name] = true
	}
	for name, image := range b.images() {
		p.unless(slices.Contains(b.CSV.Spec.RelatedImages, RelatedImage{Name: name, Image: image}), "%s %s isn't", name, image)
	}
	p.unless(slices.ContainsFunc(b.CSV.Spec.RelatedImages, func(related RelatedImage) bool {
		return related.Image == b.CSV.Annotations[annotationContainerImage]
	}), "%s %q isn't", annotationContainerImage, b.CSV.Annotations[annotationContainerImage])
	return p
}

// isPinned reports whether the reference of an image has a host, a name, and a tag or
// digest.
func isPinned(image string) bool {
	host, name, hasHost := strings.Cut(image, "/")
	if name, digest, hasDigest := strings.Cut(name, "@"); hasDigest {
		return hasHost && name != "" && strings.HasPrefix(digest, "sha256:") && len(digest) == len("sha256:")+64
	}
	name, tag, hasTag := strings.Cut(name, ":")
	return hasHost && strings.ContainsAny(host, ".:") && name != "" && hasTag && tag != ""
}

func checkInternalObjects(b *Bundle) []string {
	var p problems
	var names []string
	if err := json.Unmarshal([]byte(b.CSV.Annotations[annotationInternalObjects]), &names); err != nil {
		p.addf("%v", err)
	}
	for _, name := range names {
		p.unless(slices.ContainsFunc(b.CSV.Spec.CustomResourceDefinitions.Owned, func(owned OwnedCRD) bool { return owned.Name == name }), "%s isn't", name)
	}
	return p
}
