// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package olm

import (
	"bytes"
	"fmt"

	"sigs.k8s.io/yaml"
)

// Catalog is a file-based catalog: the published versions, their channels, and their
// upgrades.
type Catalog struct {
	Package  CatalogPackage
	Channels []CatalogChannel
	Bundles  []CatalogBundle
}

// CatalogPackage describes the operator.
type CatalogPackage struct {
	Schema         string `json:"schema"` // olm.package
	Name           string `json:"name"`
	DefaultChannel string `json:"defaultChannel"`
	Description    string `json:"description"`
	Icon           Icon   `json:"icon"`
}

// CatalogChannel is a channel of versions that users subscribe to.
type CatalogChannel struct {
	Schema  string         `json:"schema"` // olm.channel
	Package string         `json:"package"`
	Name    string         `json:"name"`
	Entries []CatalogEntry `json:"entries"`
}

// CatalogEntry is a version, and the versions that it can be upgraded from.
type CatalogEntry struct {
	Name      string `json:"name"`
	Replaces  string `json:"replaces,omitempty"`
	SkipRange string `json:"skipRange,omitempty"`
}

// CatalogBundle is the image of a version, and its properties.
type CatalogBundle struct {
	Schema        string            `json:"schema"` // olm.bundle
	Package       string            `json:"package"`
	Name          string            `json:"name"`
	Image         string            `json:"image"`
	Properties    []CatalogProperty `json:"properties"`
	RelatedImages []RelatedImage    `json:"relatedImages"`
}

// CatalogProperty is a property of a bundle that is known without pulling the image.
type CatalogProperty struct {
	Type  string         `json:"type"`
	Value map[string]any `json:"value"`
}

// NewCatalog creates a catalog of one bundle, with its image.
func NewCatalog(b *Bundle, image string) *Catalog {
	csv := b.CSV
	c := &Catalog{
		Package: CatalogPackage{
			Schema: "olm.package", Name: b.Package(), DefaultChannel: b.Annotations[annotationDefaultChannel], Description: csv.Spec.Description,
		},
		Bundles: []CatalogBundle{{
			Schema: "olm.bundle", Package: b.Package(), Name: csv.Name, Image: image,
			Properties:    []CatalogProperty{{Type: "olm.package", Value: map[string]any{"packageName": b.Package(), "version": csv.Spec.Version}}},
			RelatedImages: append([]RelatedImage{{Name: "", Image: image}}, csv.Spec.RelatedImages...),
		}},
	}
	if len(csv.Spec.Icon) > 0 {
		c.Package.Icon = csv.Spec.Icon[0]
	}
	for _, channel := range b.Channels() {
		c.Channels = append(c.Channels, CatalogChannel{
			Schema: "olm.channel", Package: b.Package(), Name: channel,
			Entries: []CatalogEntry{{Name: csv.Name, Replaces: csv.Spec.Replaces, SkipRange: csv.Annotations[annotationSkipRange]}},
		})
	}
	bundle := &c.Bundles[0]
	for _, crd := range b.CRDs {
		for _, version := range crd.Spec.Versions {
			bundle.Properties = append(bundle.Properties, CatalogProperty{
				Type:  "olm.gvk",
				Value: map[string]any{"group": crd.Spec.Group, "version": version.Name, "kind": crd.Spec.Names.Kind},
			})
		}
	}
	bundle.Properties = append(bundle.Properties, CatalogProperty{Type: "olm.csv.metadata", Value: map[string]any{
		"annotations":               csv.Annotations,
		"labels":                    csv.Labels,
		"displayName":               csv.Spec.DisplayName,
		"description":               csv.Spec.Description,
		"keywords":                  csv.Spec.Keywords,
		"links":                     csv.Spec.Links,
		"maintainers":               csv.Spec.Maintainers,
		"maturity":                  csv.Spec.Maturity,
		"minKubeVersion":            csv.Spec.MinKubeVersion,
		"provider":                  csv.Spec.Provider,
		"installModes":              csv.Spec.InstallModes,
		"apiServiceDefinitions":     map[string]any{},
		"customResourceDefinitions": csv.Spec.CustomResourceDefinitions,
	}})
	return c
}

// Write writes the catalog's file.
func (c *Catalog) Write(path string) error {
	content, err := c.marshal()
	if err != nil {
		return err
	}
	return writeFile(path, content)
}

func (c *Catalog) marshal() ([]byte, error) {
	blobs := []any{c.Package}
	for _, channel := range c.Channels {
		blobs = append(blobs, channel)
	}
	for _, bundle := range c.Bundles {
		blobs = append(blobs, bundle)
	}
	var text bytes.Buffer
	for _, blob := range blobs {
		content, err := yaml.Marshal(blob)
		if err != nil {
			return nil, fmt.Errorf("marshal the catalog: %w", err)
		}
		text.WriteString("---\n")
		text.Write(content)
	}
	return text.Bytes(), nil
}
