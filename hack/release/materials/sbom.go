// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package materials

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// BOM returns the bill of materials of a binary, in CycloneDX. It depends only on the arguments.
func BOM(binary, version, timestamp string, modules []Module) (*cdx.BOM, error) {
	content, err := os.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", binary, err)
	}
	digest := sha256.Sum256(content)
	name := filepath.Base(binary)
	reference := "pkg:generic/" + name + "@" + version
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{
		Timestamp: timestamp,
		Component: &cdx.Component{
			BOMRef: reference, Type: cdx.ComponentTypeApplication, Name: name, Version: version, PackageURL: reference,
			Hashes:   &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(digest[:])}},
			Licenses: licenseChoices([]string{"Apache-2.0"}),
		},
	}
	var components []cdx.Component
	var references []string
	for _, m := range modules {
		component, err := m.component()
		if err != nil {
			return nil, fmt.Errorf("module %s of %s: %w", m.Path, binary, err)
		}
		components = append(components, component)
		references = append(references, component.BOMRef)
	}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: reference, Dependencies: &references}}
	return bom, nil
}

func (m *Module) component() (cdx.Component, error) {
	url := "pkg:golang/" + m.Path + "@" + m.Version
	c := cdx.Component{
		BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: url, Licenses: licenseChoices(m.Licenses),
	}
	if m.Sum == "" {
		return c, nil
	}
	sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:"))
	if err != nil {
		return c, fmt.Errorf("decode sum %s: %w", m.Sum, err)
	}
	c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}}
	return c, nil
}

func licenseChoices(names []string) *cdx.Licenses {
	var choices cdx.Licenses
	for _, name := range names {
		choices = append(choices, cdx.LicenseChoice{License: &cdx.License{ID: name}})
	}
	return &choices
}

// Encode writes a bill of materials as JSON.
func Encode(w io.Writer, bom *cdx.BOM) error {
	if err := cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		return fmt.Errorf("write a bill of materials: %w", err)
	}
	return nil
}
