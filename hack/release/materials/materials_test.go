// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package materials

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func TestClassify(t *testing.T) {
	const bsd = "Redistribution and use in source and binary forms, with or without modification, are permitted"
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"Apache":          {"Apache License\n   Version 2.0, January 2004", []string{"Apache-2.0"}},
		"Apache's header": {"Licensed under the Apache License, Version 2.0 (the \"License\")", []string{"Apache-2.0"}},
		"MIT": {
			"Permission is hereby granted, free of charge, to any person obtaining\na copy of this software. The above copyright notice and this\n" +
				"permission notice shall be included in all copies or substantial portions of the Software.", []string{"MIT"},
		},
		"BSD of two clauses":   {bsd, []string{"BSD-2-Clause"}},
		"BSD of three clauses": {bsd + " nor the names of contributors may be used to endorse or promote products\nderived from this software", []string{"BSD-3-Clause"}},
		"GPL":                  {"GNU GENERAL PUBLIC LICENSE\nVersion 2, June 1991", []string{"GPL"}},
		"MPL":                  {"Mozilla Public License Version 2.0; Secondary License means either the GNU General Public License, Version 2.0", []string{"MPL-2.0"}},
		"unknown":              {"All rights reserved.", nil},
		"a choice":             {"/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */\nGNU General Public License", []string{"BSD-3-Clause"}},
		"no choice":            {"/* SPDX-License-Identifier: GPL-2.0-only OR GPL-3.0-only */\nGNU General Public License", []string{"GPL"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Classify(test.text); !slices.Equal(got, test.want) {
				t.Errorf("it is %q, not %q", got, test.want)
			}
		})
	}
}

func TestCollect_RefusesLicensesThatAreUnknownOrAskForMore(t *testing.T) {
	for name, text := range map[string]string{"unknown": "All rights reserved.", "GPL": "GNU General Public License"} {
		t.Run(name, func(t *testing.T) {
			m := Module{Path: "example.com/module", Version: "v1.0.0", Dir: t.TempDir()}
			if err := os.WriteFile(filepath.Join(m.Dir, "LICENSE"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := m.findLicenses(); err != nil {
				t.Fatal(err)
			}
			if err := Collect([]Module{m}, t.TempDir()); err == nil || !strings.Contains(err.Error(), m.Path) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

func TestModule_HasTheNoticesOfWhatItHasCopied(t *testing.T) {
	m := Module{Path: "example.com/module", Dir: t.TempDir()}
	for name, text := range map[string]string{
		"LICENSE":                    "Apache License Version 2.0",
		"NOTICE.txt":                 "of someone",
		"third_party/copied/LICENSE": "GNU General Public License",
		"license.go":                 "package module",
		"testdata/COPYING":           "of a test",
	} {
		if err := os.MkdirAll(filepath.Join(m.Dir, filepath.Dir(name)), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(m.Dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.findLicenses(); err != nil {
		t.Fatal(err)
	}
	if want := []string{"LICENSE", "NOTICE.txt", "third_party/copied/LICENSE"}; !slices.Equal(m.Files, want) {
		t.Errorf("its files are %q, not %q", m.Files, want)
	}
	if !slices.Equal(m.Licenses, []string{"Apache-2.0"}) {
		t.Errorf("its licenses are %q", m.Licenses)
	}
}

// builtModules returns the modules of this module's own command. It builds the command, because a test's binary
// doesn't contain its modules.
func builtModules(t *testing.T) (binary string, modules []Module) {
	t.Helper()
	binary = filepath.Join(t.TempDir(), "release")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "github.com/bpfman/bpfman-operator/hack/release")
	build.Env = append(os.Environ(), "GOWORK=off")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	output, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	dirs := strings.Fields(string(output))
	modules, err = Modules(binary, Sources{ModuleCache: dirs[0], Go: dirs[1]})
	if err != nil {
		t.Fatal(err)
	}
	return binary, modules
}

func TestModules_AreThoseOfTheBinary(t *testing.T) {
	_, modules := builtModules(t)
	licenses := map[string][]string{}
	for _, m := range modules {
		licenses[m.Path] = m.Licenses
	}
	for path, want := range map[string][]string{
		Standard:                            {"BSD-3-Clause"},
		"golang.org/x/mod":                  {"BSD-3-Clause"},
		"github.com/CycloneDX/cyclonedx-go": {"Apache-2.0"},
	} {
		if !slices.Equal(licenses[path], want) {
			t.Errorf("%s is under %q, not %q", path, licenses[path], want)
		}
	}
	dir := t.TempDir()
	if err := Collect(modules, dir); err != nil {
		t.Fatal(err)
	}
	for _, m := range modules {
		if _, err := os.Stat(filepath.Join(dir, m.Path, m.Files[0])); err != nil {
			t.Error(err)
		}
	}
}

func TestBOM_HasEachModuleWithItsHash(t *testing.T) {
	binary, modules := builtModules(t)
	var texts [2]bytes.Buffer
	for i := range texts {
		bom, err := BOM(binary, "1.2.3", "2026-01-02T03:04:05Z", modules)
		if err != nil {
			t.Fatal(err)
		}
		if err := Encode(&texts[i], bom); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(texts[0].Bytes(), texts[1].Bytes()) {
		t.Error("it isn't the same each time")
	}
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(&texts[0], cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	if bom.SpecVersion != cdx.SpecVersion1_6 || bom.Metadata.Timestamp != "2026-01-02T03:04:05Z" || bom.Metadata.Component.Version != "1.2.3" {
		t.Errorf("it is of %s, at %s, about version %s", bom.SpecVersion, bom.Metadata.Timestamp, bom.Metadata.Component.Version)
	}
	if len(*bom.Components) != len(modules) || len(*(*bom.Dependencies)[0].Dependencies) != len(modules) {
		t.Fatalf("%d components of %d modules", len(*bom.Components), len(modules))
	}
	for _, component := range *bom.Components {
		hashed := component.Hashes != nil && len((*component.Hashes)[0].Value) == 64
		if hashed == (component.Name == Standard) || len(*component.Licenses) == 0 {
			t.Errorf("%s has the hashes %v and %d licenses", component.Name, component.Hashes, len(*component.Licenses))
		}
	}
}
