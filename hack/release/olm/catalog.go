// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package olm

import (
	"bytes"
	"fmt"

	"github.com/operator-framework/api/pkg/manifests"
	"sigs.k8s.io/yaml"
)

// blob is an object of a file-based catalog, whose type is in its field schema. operator-registry has the types.
type blob = map[string]any

// WriteCatalog writes a file-based catalog of the bundle in a directory, with the bundle's image: the package, its
// channels, which say what the version upgrades, and the version.
func WriteCatalog(dir, image, path string) error {
	b, err := manifests.GetBundleFromDir(dir)
	if err != nil {
		return fmt.Errorf("read bundle %s: %w", dir, err)
	}
	var text bytes.Buffer
	for _, object := range catalog(b, image) {
		content, err := yaml.Marshal(object)
		if err != nil {
			return fmt.Errorf("marshal the catalog: %w", err)
		}
		text.WriteString("---\n")
		text.Write(content)
	}
	return writeFile(path, text.Bytes())
}

func catalog(b *manifests.Bundle, image string) []blob {
	spec := b.CSV.Spec
	pkg := blob{"schema": "olm.package", "name": b.Package, "defaultChannel": b.DefaultChannel, "description": spec.Description}
	for _, icon := range spec.Icon {
		pkg["icon"] = icon
	}
	blobs := []blob{pkg}
	entry := blob{"name": b.CSV.Name}
	if spec.Replaces != "" {
		entry["replaces"] = spec.Replaces
	}
	if skipped := b.CSV.Annotations[annotationSkipRange]; skipped != "" {
		entry["skipRange"] = skipped
	}
	for _, channel := range b.Channels {
		blobs = append(blobs, blob{"schema": "olm.channel", "package": b.Package, "name": channel, "entries": []blob{entry}})
	}
	properties := []blob{{"type": "olm.package", "value": blob{"packageName": b.Package, "version": spec.Version}}}
	for _, crd := range b.V1CRDs {
		for _, version := range crd.Spec.Versions {
			properties = append(properties, blob{
				"type":  "olm.gvk",
				"value": blob{"group": crd.Spec.Group, "version": version.Name, "kind": crd.Spec.Names.Kind},
			})
		}
	}
	properties = append(properties, blob{"type": "olm.csv.metadata", "value": blob{
		"annotations":               b.CSV.Annotations,
		"labels":                    b.CSV.Labels,
		"displayName":               spec.DisplayName,
		"description":               spec.Description,
		"keywords":                  spec.Keywords,
		"links":                     spec.Links,
		"maintainers":               spec.Maintainers,
		"maturity":                  spec.Maturity,
		"minKubeVersion":            spec.MinKubeVersion,
		"provider":                  spec.Provider,
		"installModes":              spec.InstallModes,
		"apiServiceDefinitions":     spec.APIServiceDefinitions,
		"customResourceDefinitions": spec.CustomResourceDefinitions,
	}})
	images := []blob{{"name": "", "image": image}}
	for _, related := range spec.RelatedImages {
		images = append(images, blob{"name": related.Name, "image": related.Image})
	}
	return append(blobs, blob{
		"schema": "olm.bundle", "package": b.Package, "name": b.CSV.Name, "image": image, "properties": properties, "relatedImages": images,
	})
}
