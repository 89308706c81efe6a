// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package olm

import (
	"bytes"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const bundleImage = "quay.io/bpfman/bpfman-operator-bundle:latest"

func TestCatalog_OfTheBundleKeepsEachRule(t *testing.T) {
	c := NewCatalog(readCommitted(t), bundleImage)
	for _, rule := range CatalogRules {
		t.Run(rule.Name, func(t *testing.T) {
			for _, problem := range rule.Check(c) {
				t.Error(problem)
			}
		})
	}
	content, err := c.marshal()
	if err != nil {
		t.Fatal(err)
	}
	blobs, err := Objects(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	var schemas []string
	for _, blob := range blobs {
		schema, _, err := unstructured.NestedString(blob.Object, "schema")
		if err != nil {
			t.Fatal(err)
		}
		schemas = append(schemas, schema)
	}
	if len(schemas) != 3 || schemas[0] != "olm.package" || schemas[1] != "olm.channel" || schemas[2] != "olm.bundle" {
		t.Errorf("the file has %q", schemas)
	}
}

func TestCatalog_OfAnUpgradeTellsWhatItReplaces(t *testing.T) {
	b := readCommitted(t)
	b.CSV.Spec.Replaces = "bpfman-operator.v0.5.0"
	b.CSV.Annotations[annotationSkipRange] = ">=0.4.0 <0.6.0"
	got := NewCatalog(b, bundleImage).Channels[0].Entries[0]
	if want := (CatalogEntry{Name: b.CSV.Name, Replaces: "bpfman-operator.v0.5.0", SkipRange: ">=0.4.0 <0.6.0"}); got != want {
		t.Errorf("the entry is %v, not %v", got, want)
	}
}

var catalogBreaks = map[string][]func(*Catalog){
	"the package has a name and an icon": {
		func(c *Catalog) { c.Package.Name = "" },
		func(c *Catalog) { c.Package.Icon = Icon{} },
	},
	"the default channel is there": {func(c *Catalog) { c.Package.DefaultChannel = "stable" }},
	"channels have entries, and one head": {
		func(c *Catalog) { c.Channels[0].Entries = nil },
		func(c *Catalog) { c.Channels[0].Entries = append(c.Channels[0].Entries, CatalogEntry{Name: "other"}) },
		func(c *Catalog) { c.Channels[0].Package = "other" },
		func(c *Catalog) { c.Channels = append(c.Channels, c.Channels[0]) },
	},
	"entries are bundles, and bundles are entries": {
		func(c *Catalog) { c.Channels[0].Entries[0].Name = "other" },
		func(c *Catalog) { c.Bundles = append(c.Bundles, c.Bundles[0]) },
	},
	"bundles have images": {
		func(c *Catalog) { c.Bundles[0].Image = "" },
		func(c *Catalog) { c.Bundles[0].RelatedImages = c.Bundles[0].RelatedImages[1:] },
	},
	"bundles tell their package, version and APIs": {
		func(c *Catalog) { c.Bundles[0].Properties = c.Bundles[0].Properties[:1] },
		func(c *Catalog) { c.Bundles[0].Properties[0].Value["version"] = "latest" },
		func(c *Catalog) { c.Bundles[0].Properties[1].Value["kind"] = "" },
		func(c *Catalog) { c.Bundles[0].Properties[1].Type = "olm.other" },
	},
}

func TestCatalogRules_TellWhatBreaksThem(t *testing.T) {
	b := readCommitted(t)
	for _, rule := range CatalogRules {
		t.Run(rule.Name, func(t *testing.T) {
			if len(catalogBreaks[rule.Name]) == 0 {
				t.Fatal("nothing breaks it")
			}
			for i, breakIt := range catalogBreaks[rule.Name] {
				c := NewCatalog(b, bundleImage)
				breakIt(c)
				if len(rule.Check(c)) == 0 {
					t.Errorf("case %d isn't noticed", i)
				}
			}
		})
	}
}
