// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package olm

import (
	"errors"
	"fmt"
	"slices"
)

// CatalogRule is a rule for file-based catalogs. A catalog that violates it isn't
// served.
type CatalogRule struct {
	Name  string
	Check func(*Catalog) []string // returns the violations
}

// CatalogRules are the rules of file-based catalogs.
var CatalogRules = []CatalogRule{
	{"the package has a name and an icon", checkCatalogPackage},
	{"the default channel is there", checkCatalogDefault},
	{"channels have entries, and one head", checkCatalogChannels},
	{"entries are bundles, and bundles are entries", checkCatalogEntries},
	{"bundles have images", checkCatalogImages},
	{"bundles tell their package, version and APIs", checkCatalogProperties},
}

// ValidateCatalog returns the rules that a catalog violates.
func ValidateCatalog(c *Catalog) error {
	var broken []error
	for _, rule := range CatalogRules {
		for _, problem := range rule.Check(c) {
			broken = append(broken, fmt.Errorf("%s: %s", rule.Name, problem))
		}
	}
	return errors.Join(broken...)
}

func checkCatalogPackage(c *Catalog) []string {
	var p problems
	p.unless(c.Package.Schema == "olm.package" && c.Package.Name != "", "it is %s %q", c.Package.Schema, c.Package.Name)
	p.unless(c.Package.Icon.Data != "" && slices.Contains(pictures, c.Package.Icon.MediaType), "the icon's type is %q", c.Package.Icon.MediaType)
	return p
}

func checkCatalogDefault(c *Catalog) []string {
	var p problems
	p.unless(slices.ContainsFunc(c.Channels, func(channel CatalogChannel) bool { return channel.Name == c.Package.DefaultChannel }),
		"%q isn't", c.Package.DefaultChannel)
	return p
}

func checkCatalogChannels(c *Catalog) []string {
	var p problems
	for i, channel := range c.Channels {
		p.unless(channel.Schema == "olm.channel" && channel.Package == c.Package.Name, "%q is a %s of %s", channel.Name, channel.Schema, channel.Package)
		p.unless(!slices.ContainsFunc(c.Channels[:i], func(other CatalogChannel) bool { return other.Name == channel.Name }), "%q is there twice", channel.Name)
		heads := 0
		for _, entry := range channel.Entries {
			if !slices.ContainsFunc(channel.Entries, func(other CatalogEntry) bool { return other.Replaces == entry.Name }) {
				heads++
			}
		}
		p.unless(heads == 1, "%q has %d heads", channel.Name, heads)
	}
	return p
}

func checkCatalogEntries(c *Catalog) []string {
	var p problems
	entries := map[string]bool{}
	for _, channel := range c.Channels {
		for _, entry := range channel.Entries {
			entries[entry.Name] = true
		}
	}
	for i, bundle := range c.Bundles {
		p.unless(entries[bundle.Name], "%q is in no channel", bundle.Name)
		p.unless(!slices.ContainsFunc(c.Bundles[:i], func(other CatalogBundle) bool { return other.Name == bundle.Name }), "%q is there twice", bundle.Name)
		delete(entries, bundle.Name)
	}
	for name := range entries {
		p.addf("%q isn't there", name)
	}
	return p
}

func checkCatalogImages(c *Catalog) []string {
	var p problems
	for _, bundle := range c.Bundles {
		p.unless(bundle.Schema == "olm.bundle" && bundle.Package == c.Package.Name, "%q is a %s of %s", bundle.Name, bundle.Schema, bundle.Package)
		p.unless(isPinned(bundle.Image), "%q of %s is none", bundle.Image, bundle.Name)
		p.unless(slices.ContainsFunc(bundle.RelatedImages, func(related RelatedImage) bool { return related.Image == bundle.Image }),
			"%s isn't a related image of %s", bundle.Image, bundle.Name)
	}
	return p
}

func checkCatalogProperties(c *Catalog) []string {
	var p problems
	for _, bundle := range c.Bundles {
		count := map[string]int{}
		for _, property := range bundle.Properties {
			count[property.Type]++
			switch property.Type {
			case "olm.package":
				version, isText := property.Value["version"].(string)
				p.unless(property.Value["packageName"] == c.Package.Name && isText && isVersion(version), "%s is %v", bundle.Name, property.Value)
			case "olm.gvk":
				p.unless(property.Value["group"] != "" && property.Value["version"] != "" && property.Value["kind"] != "", "%s has the API %v", bundle.Name, property.Value)
			case "olm.csv.metadata":
			default:
				p.addf("%s has the property %s", bundle.Name, property.Type)
			}
		}
		p.unless(count["olm.package"] == 1 && count["olm.gvk"] > 0 && count["olm.csv.metadata"] == 1, "%s has the properties %v", bundle.Name, count)
	}
	return p
}
