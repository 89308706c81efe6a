// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package olm

import (
	"errors"
	"fmt"
)

// Rule is a rule for bundles. OLM, a catalog, or a console refuses bundles that violate
// it.
type Rule struct {
	Name  string
	Check func(*Bundle) []string // returns the violations
}

// Rules are the rules of the bundle format registry+v1, of ClusterServiceVersions, and of
// public catalogs.
var Rules = []Rule{
	// The bundle
	{"the media type is registry+v1, in the directories that it names", checkMediaType},
	{"the package has a name that is valid in Kubernetes", checkPackage},
	{"there is a channel, and the default channel is one of them", checkChannels},
	{"channels are named candidate, fast or stable", checkChannelNames},
	{"the image has the annotations as labels", checkLabels},
	{"the image has nothing but the bundle's directories", checkImage},
	{"all kinds are ones that OLM installs", checkKinds},
	{"all APIs are of a version that Kubernetes serves for good", checkAPIVersions},
	{"no object has a namespace: OLM gives it", checkNamespaces},
	{"all manifests fit into what OLM unpacks", checkSize},
	{"the scorecard's configuration is found, and each test has an image, a command and a suite", checkScorecard},

	// The ClusterServiceVersion
	{"it is a ClusterServiceVersion of v1alpha1", checkType},
	{"its name is the package's with its version", checkName},
	{"its version is a semantic one", checkVersion},
	{"what it replaces is a former version of the package", checkReplaces},
	{"the least version of Kubernetes is a semantic one", checkMinKubeVersion},
	{"it has a display name, a description, keywords and a maturity", checkTexts},
	{"the provider has a name", checkProvider},
	{"maintainers have names and mail addresses", checkMaintainers},
	{"links have names and addresses", checkLinks},
	{"there is one icon, of a picture's type", checkIcon},
	{"capabilities are a level that is defined", checkCapabilities},
	{"categories are ones that are defined", checkCategories},
	{"each install mode is there once, and one is supported", checkInstallModes},
	{"systems and architectures are those that the operator may run on", checkArchitectures},
	{"the suggested namespace is the one of its template", checkNamespaceTemplate},

	// What is installed
	{"it is installed by Deployments whose containers request resources", checkDeployments},
	{"Deployments run as ServiceAccounts that have permissions", checkServiceAccounts},
	{"ServiceAccounts that OLM makes aren't in the bundle too", checkMadeAccounts},
	{"no permission is for everything, or changes a cluster's own SecurityContextConstraints", checkPermissions},
	{"all images are related images, each once, with a tag or digest", checkRelatedImages},

	// The APIs
	{"owned CustomResourceDefinitions are those of the bundle", checkOwned},
	{"CustomResourceDefinitions are valid", checkCRDs},
	{"owned CustomResourceDefinitions have display names, descriptions and resources", checkOwnedTexts},
	{"described fields are in the schema", checkDescriptors},
	{"examples are valid objects of owned kinds, and each kind that users write has one", checkExamples},
	{"internal objects are owned", checkInternalObjects},
}

// Validate returns the rules that a bundle violates.
func Validate(b *Bundle) error {
	var broken []error
	for _, rule := range Rules {
		for _, problem := range rule.Check(b) {
			broken = append(broken, fmt.Errorf("%s: %s", rule.Name, problem))
		}
	}
	return errors.Join(broken...)
}

// problems collects what is wrong.
type problems []string

func (p *problems) addf(format string, args ...any) { *p = append(*p, fmt.Sprintf(format, args...)) }

// unless adds a problem if a condition is false.
func (p *problems) unless(holds bool, format string, args ...any) {
	if !holds {
		p.addf(format, args...)
	}
}
