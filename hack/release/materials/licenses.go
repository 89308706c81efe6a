// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package materials finds out what a binary contains: its modules, as a bill of materials, and their
// licenses.
package materials

import (
	"debug/buildinfo"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/module"
)

// Module is a module that is linked into a binary, or Go's standard library.
type Module struct {
	Path     string
	Version  string
	Sum      string   // its hash in go.sum
	Licenses []string // of the module itself, as SPDX identifiers
	Files    []string // licenses and notices of the module and of copied code, relative to Dir
	Dir      string
}

// Standard is the name of Go's standard library in the list of modules.
const Standard = "std"

// Sources are the directories of the modules' files.
type Sources struct {
	ModuleCache string // GOMODCACHE
	Go          string // GOROOT
}

// Modules returns the modules of a binary, without the project's own.
func Modules(binary string, sources Sources) ([]Module, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("read what is in %s: %w", binary, err)
	}
	modules := []Module{{Path: Standard, Version: strings.TrimPrefix(info.GoVersion, "go"), Dir: sources.Go}}
	for _, dependency := range info.Deps {
		// replace directives connect the project's own modules.
		if dependency.Replace != nil || dependency.Version == "(devel)" {
			continue
		}
		escapedPath, err := module.EscapePath(dependency.Path)
		if err != nil {
			return nil, fmt.Errorf("module %s of %s: %w", dependency.Path, binary, err)
		}
		escapedVersion, err := module.EscapeVersion(dependency.Version)
		if err != nil {
			return nil, fmt.Errorf("module %s of %s: %w", dependency.Path, binary, err)
		}
		modules = append(modules, Module{
			Path: dependency.Path, Version: dependency.Version, Sum: dependency.Sum,
			Dir: filepath.Join(sources.ModuleCache, escapedPath+"@"+escapedVersion),
		})
	}
	for i := range modules {
		if err := modules[i].findLicenses(); err != nil {
			return nil, fmt.Errorf("licenses of %s: %w", modules[i].Path, err)
		}
	}
	return modules, nil
}

// findLicenses looks for licenses and notices. For Go's standard library, there is one for everything.
// Code that a module has copied can have other licenses, in its own directories.
func (m *Module) findLicenses() error {
	err := filepath.WalkDir(m.Dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if path != m.Dir && (m.Path == Standard || entry.Name() == "testdata" || entry.Name() == "vendor") {
				return fs.SkipDir
			}
			return nil
		}
		if !isNotice(entry.Name()) {
			return nil
		}
		name, err := filepath.Rel(m.Dir, path)
		m.Files = append(m.Files, name)
		return err
	})
	if err != nil {
		return err
	}
	for _, name := range m.Files {
		if filepath.Dir(name) != "." || !isLicense(name) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(m.Dir, name))
		if err != nil {
			return err
		}
		m.Licenses = append(m.Licenses, Classify(string(text))...)
	}
	slices.Sort(m.Licenses)
	m.Licenses = slices.Compact(m.Licenses)
	return nil
}

func isLicense(name string) bool {
	name = strings.ToUpper(name)
	return strings.HasPrefix(name, "LICENSE") || strings.HasPrefix(name, "LICENCE") || strings.HasPrefix(name, "COPYING")
}

// isNotice reports whether a file has to be distributed with the binary.
func isNotice(name string) bool {
	extension := strings.ToLower(filepath.Ext(name))
	isText := !slices.Contains([]string{".go", ".sh", ".py", ".js", ".json", ".yaml", ".yml", ".tmpl", ".toml", ".html"}, extension)
	return isText && (isLicense(name) || strings.HasPrefix(strings.ToUpper(name), "NOTICE") || strings.EqualFold(name, "PATENTS"))
}

// licenses are identified by phrases that all versions of a license's text contain, and no other
// license.
var licenses = []struct {
	name    string
	phrases []string
	without string
}{
	{"Apache-2.0", []string{"apache license version 2.0"}, ""},
	{"MIT", []string{
		"permission is hereby granted, free of charge, to any person obtaining a copy",
		"the above copyright notice and this permission notice shall be included in all copies or substantial portions",
	}, ""},
	{"BSD-3-Clause", []string{"redistribution and use in source and binary forms", "to endorse or promote products derived from this software"}, ""},
	{"BSD-2-Clause", []string{"redistribution and use in source and binary forms"}, "to endorse or promote products derived from this software"},
	{"ISC", []string{"permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby granted"}, ""},
	{"MPL-2.0", []string{"mozilla public license version 2.0"}, ""},
	{"GPL", []string{"gnu general public license"}, "mozilla public license version 2.0"},
	{"LGPL", []string{"gnu lesser general public license"}, "mozilla public license version 2.0"},
	{"AGPL", []string{"gnu affero general public license"}, "mozilla public license version 2.0"},
}

// choice matches the statement that a text contains several licenses, of which one can be chosen.
var choice = regexp.MustCompile(`SPDX-License-Identifier: (\S+(?: OR \S+)+)`)

// Classify returns the SPDX identifiers of the licenses in a text. It only knows licenses that require
// at most notices. If one of several can be chosen, it returns only an allowed one.
func Classify(text string) []string {
	if stated := choice.FindStringSubmatch(text); stated != nil {
		for name := range strings.SplitSeq(stated[1], " OR ") {
			if slices.Contains(allowed, name) {
				return []string{name}
			}
		}
	}
	text = strings.ToLower(strings.Join(strings.Fields(text), " "))
	text = strings.ReplaceAll(text, "license, version 2.0", "license version 2.0")
	var names []string
	for _, license := range licenses {
		has := !slices.ContainsFunc(license.phrases, func(phrase string) bool { return !strings.Contains(text, phrase) })
		if has && (license.without == "" || !strings.Contains(text, license.without)) {
			names = append(names, license.name)
		}
	}
	return names
}

// allowed are the licenses that allow distributing a binary with nothing but its notices.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT"}

// Collect copies the licenses and notices of modules to a directory, with a subdirectory for each
// module. It fails if a module's license is unknown or isn't allowed.
func Collect(modules []Module, dir string) error {
	for _, m := range modules {
		if len(m.Licenses) == 0 {
			return fmt.Errorf("%s %s has no license that is known: %q", m.Path, m.Version, m.Files)
		}
		for _, license := range m.Licenses {
			if !slices.Contains(allowed, license) {
				return fmt.Errorf("%s %s is under %s", m.Path, m.Version, license)
			}
		}
		for _, name := range m.Files {
			content, err := os.ReadFile(filepath.Join(m.Dir, name))
			if err != nil {
				return fmt.Errorf("license of %s: %w", m.Path, err)
			}
			target := filepath.Join(dir, filepath.FromSlash(m.Path), name)
			if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil { //nolint:gosec // everyone can read published files
				return fmt.Errorf("copy the license of %s: %w", m.Path, err)
			}
			if err := os.WriteFile(target, content, 0o644); err != nil { //nolint:gosec // everyone can read published files
				return fmt.Errorf("copy the license of %s: %w", m.Path, err)
			}
		}
	}
	return nil
}
