// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package olm creates what the Operator Lifecycle Manager installs: a bundle of the project's manifests
// in the registry+v1 format, and a file-based catalog of bundles. It also contains the rules for both.
package olm

import (
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterServiceVersion describes one version of an operator: how a catalog shows it, what it requires,
// and how it is deployed. It has the fields of operators.coreos.com/v1alpha1 that this project uses.
type ClusterServiceVersion struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec ClusterServiceVersionSpec `json:"spec"`
}

// ClusterServiceVersionSpec is its spec.
type ClusterServiceVersionSpec struct {
	DisplayName               string                    `json:"displayName"`
	Description               string                    `json:"description"`
	Version                   string                    `json:"version"`
	Replaces                  string                    `json:"replaces,omitempty"`
	Maturity                  string                    `json:"maturity"`
	MinKubeVersion            string                    `json:"minKubeVersion"`
	Keywords                  []string                  `json:"keywords"`
	Maintainers               []Maintainer              `json:"maintainers,omitempty"`
	Provider                  Link                      `json:"provider"`
	Links                     []Link                    `json:"links"`
	Icon                      []Icon                    `json:"icon"`
	InstallModes              []InstallMode             `json:"installModes"`
	CustomResourceDefinitions CustomResourceDefinitions `json:"customresourcedefinitions,omitzero"`
	Install                   Install                   `json:"install,omitzero"`
	RelatedImages             []RelatedImage            `json:"relatedImages,omitempty"`
}

// Maintainer is a contact.
type Maintainer struct {
	Name  string `json:"name"`
	Email string `json:"email"`
}

// Link is a page about the operator or its provider.
type Link struct {
	Name string `json:"name"`
	URL  string `json:"url"`
}

// Icon is the operator's picture, in base64.
type Icon struct {
	Data      string `json:"base64data"`
	MediaType string `json:"mediatype"`
}

// InstallMode says whether the operator can watch a number of namespaces.
type InstallMode struct {
	Type      string `json:"type"`
	Supported bool   `json:"supported"`
}

// CustomResourceDefinitions are the APIs of the operator.
type CustomResourceDefinitions struct {
	Owned []OwnedCRD `json:"owned"`
}

// OwnedCRD describes a CustomResourceDefinition for users.
type OwnedCRD struct {
	Name              string       `json:"name"`
	Kind              string       `json:"kind"`
	Version           string       `json:"version"`
	DisplayName       string       `json:"displayName"`
	Description       string       `json:"description"`
	Resources         []Resource   `json:"resources"`
	SpecDescriptors   []Descriptor `json:"specDescriptors,omitempty"`
	StatusDescriptors []Descriptor `json:"statusDescriptors,omitempty"`
}

// Resource is a kind that is related to an owned kind.
type Resource struct {
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Descriptor describes a field.
type Descriptor struct {
	Path         string   `json:"path"`
	DisplayName  string   `json:"displayName"`
	Description  string   `json:"description"`
	XDescriptors []string `json:"x-descriptors,omitempty"`
}

// Install says how the operator is deployed.
type Install struct {
	Strategy string      `json:"strategy"`
	Spec     InstallSpec `json:"spec"`
}

// InstallSpec contains the Deployments, and the permissions of the ServiceAccounts that OLM creates for
// them.
type InstallSpec struct {
	ClusterPermissions []Permission `json:"clusterPermissions"`
	Permissions        []Permission `json:"permissions"`
	Deployments        []Deployment `json:"deployments"`
}

// Permission contains the rules for one ServiceAccount.
type Permission struct {
	ServiceAccountName string              `json:"serviceAccountName"`
	Rules              []rbacv1.PolicyRule `json:"rules"`
}

// Deployment is a Deployment that OLM creates.
type Deployment struct {
	Name  string                `json:"name"`
	Label map[string]string     `json:"label,omitempty"`
	Spec  appsv1.DeploymentSpec `json:"spec"`
}

// RelatedImage is an image that the operator needs. Disconnected registries have to mirror it.
type RelatedImage struct {
	Name  string `json:"name"`
	Image string `json:"image"`
}

// Scorecard is the configuration of operator-sdk's tests of a bundle.
type Scorecard struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Stages  []ScorecardStage `json:"stages"`
	Storage map[string]any   `json:"storage,omitempty"`
}

// ScorecardStage is a group of tests.
type ScorecardStage struct {
	Parallel bool            `json:"parallel,omitempty"`
	Tests    []ScorecardTest `json:"tests"`
}

// ScorecardTest is a test image.
type ScorecardTest struct {
	Image      string            `json:"image"`
	Entrypoint []string          `json:"entrypoint"`
	Labels     map[string]string `json:"labels"`
	Storage    map[string]any    `json:"storage,omitempty"`
}
