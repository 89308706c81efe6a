// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package krew creates the manifest with which krew, kubectl's plugin manager, installs the plugin.
package krew

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"sigs.k8s.io/yaml"
)

// Archive is a file of a release with the plugin for one platform.
type Archive struct {
	OS, Arch string
	URL      string
	SHA256   string
	// Bin is the path of the plugin in the archive.
	Bin string
}

// command is the name of the plugin's executable. Each archive contains one.
const command = "kubectl-bpfman"

var archiveName = regexp.MustCompile(`^kubectl-bpfman-(.+)-(linux|darwin|windows)-([a-z0-9]+)\.tar\.gz$`)

// Open reads an archive that is to be published at a URL, with the same file name.
func Open(file, version, url string) (Archive, error) {
	name := filepath.Base(file)
	parts := archiveName.FindStringSubmatch(name)
	if parts == nil || parts[1] != version {
		return Archive{}, fmt.Errorf("%s isn't named as an archive of version %s", name, version)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return Archive{}, fmt.Errorf("read archive: %w", err)
	}
	sum := sha256.Sum256(content)
	a := Archive{OS: parts[2], Arch: parts[3], URL: url + "/" + name, SHA256: hex.EncodeToString(sum[:]), Bin: command}
	if a.OS == "windows" {
		a.Bin += ".exe"
	}
	files, err := list(content)
	if err != nil {
		return Archive{}, fmt.Errorf("%s: %w", name, err)
	}
	// krew's index also requires the license.
	for _, file := range []string{a.Bin, "LICENSE"} {
		if !slices.Contains(files, file) {
			return Archive{}, fmt.Errorf("%s lacks %s: it has %s", name, file, strings.Join(files, ", "))
		}
	}
	return a, nil
}

// list returns the names of the files in an archive.
func list(content []byte) ([]string, error) {
	unzipped, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("it isn't gzipped: %w", err)
	}
	var files []string
	for r := tar.NewReader(unzipped); ; {
		header, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return files, nil
		case err != nil:
			return nil, fmt.Errorf("it is no tar archive: %w", err)
		case header.Typeflag == tar.TypeReg:
			files = append(files, path.Clean(header.Name))
		}
	}
}

// Manifest executes the template, and validates the result against krew's rules.
func Manifest(text, version string, archives []Archive) ([]byte, error) {
	t, err := template.New("manifest").Option("missingkey=error").Parse(text)
	if err != nil {
		return nil, fmt.Errorf("read template: %w", err)
	}
	archives = slices.SortedFunc(slices.Values(archives), func(a, b Archive) int {
		return cmp.Or(cmp.Compare(a.OS, b.OS), cmp.Compare(a.Arch, b.Arch))
	})
	var out bytes.Buffer
	if err := t.Execute(&out, map[string]any{"Version": version, "Archives": archives}); err != nil {
		return nil, fmt.Errorf("fill in template: %w", err)
	}
	return out.Bytes(), Validate(out.Bytes())
}

// plugin is krew's kind, with the fields that this project uses.
type plugin struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Version          string     `json:"version"`
		Homepage         string     `json:"homepage"`
		ShortDescription string     `json:"shortDescription"`
		Description      string     `json:"description"`
		Caveats          string     `json:"caveats"`
		Platforms        []platform `json:"platforms"`
	} `json:"spec"`
}

type platform struct {
	Selector struct {
		MatchLabels map[string]string `json:"matchLabels"`
	} `json:"selector"`
	URI    string `json:"uri"`
	SHA256 string `json:"sha256"`
	Bin    string `json:"bin"`
}

var (
	semantic = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?$`)
	sum      = regexp.MustCompile(`^[0-9a-f]{64}$`)
	name     = regexp.MustCompile(`^[a-z0-9-]+$`)
)

// maxShort is the maximum length of a short description in krew's index.
const maxShort = 50

// Validate validates a manifest against the rules in the developer guide of krew and its index.
func Validate(manifest []byte) error {
	var p plugin
	if err := yaml.UnmarshalStrict(manifest, &p); err != nil {
		return fmt.Errorf("read krew's manifest: %w", err)
	}
	var errs []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf("krew's manifest: "+format, args...))
		}
	}
	s := p.Spec
	refuse(p.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || p.Kind != "Plugin", "its kind is %s %s", p.APIVersion, p.Kind)
	refuse(!name.MatchString(p.Metadata.Name), "its name is %q", p.Metadata.Name)
	refuse(!semantic.MatchString(s.Version), "its version %q isn't a semantic one with a v before it", s.Version)
	refuse(s.ShortDescription == "" || len(s.ShortDescription) > maxShort || strings.ContainsAny(s.ShortDescription, "\r\n"), "its short description has %d characters, or several lines", len(s.ShortDescription))
	refuse(!strings.HasPrefix(s.Homepage, "https://") || s.Description == "", "it lacks a homepage or a description")
	refuse(len(s.Platforms) == 0, "it has no platform")
	seen := map[string]bool{}
	for _, each := range s.Platforms {
		labels := each.Selector.MatchLabels
		where := labels["os"] + "/" + labels["arch"]
		refuse(len(labels) != 2 || labels["os"] == "" || labels["arch"] == "" || seen[where], "the platform %v is none, or is there twice", labels)
		seen[where] = true
		refuse(!strings.HasPrefix(each.URI, "https://"), "%s: its address is %q", where, each.URI)
		refuse(!sum.MatchString(each.SHA256), "%s: its checksum is %q", where, each.SHA256)
		refuse(!filepath.IsLocal(each.Bin), "%s: its command is %q", where, each.Bin)
	}
	return errors.Join(errs...)
}
