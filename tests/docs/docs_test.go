// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package docs tests the documentation: links have a target, manifests are valid, and the
// targets and keys that it names exist.
package docs

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/makefile"
	"github.com/bpfman/bpfman-operator/tests/must"
)

const root = "../.."

// page is one file of the documentation.
type page struct {
	path string
	text string // without the content of fences
	yaml []string
}

// readPages reads the README files and everything in docs.
func readPages(t *testing.T) []page {
	t.Helper()
	paths := []string{"README.md", "CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "GOVERNANCE.md", "ROADMAP.md", "SECURITY.md", "charts/bpfman-operator/README.md", "examples/README.md", "gobpfman/README.md", "hack/cluster/README.md", "tests/README.md"}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(entry.Name()) == ".md" {
			path, err = filepath.Rel(root, path)
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var pages []page
	for _, path := range paths {
		content := must.Read(t, filepath.Join(root, path))
		pages = append(pages, parse(path, string(content)))
	}
	return pages
}

func parse(path, content string) page {
	p := page{path: path}
	var text, block strings.Builder
	fence := ""
	for line := range strings.Lines(content) {
		marker, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case isFence && fence == "":
			fence = "fence " + marker
		case isFence:
			if language, _, _ := strings.Cut(fence, " title="); language == "fence yaml" {
				p.yaml = append(p.yaml, block.String())
			}
			fence = ""
			block.Reset()
		case fence != "":
			block.WriteString(line)
		default:
			text.WriteString(line)
		}
	}
	p.text = text.String()
	return p
}

var (
	linkPattern    = regexp.MustCompile(`\]\(([^)\s\[*]+)\)`) // [ and * appear in regular expressions in the API reference
	headingPattern = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	ofMode         = regexp.MustCompile(`^gh-(light|dark)-mode-only$`)
	notInAnchor    = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors returns the fragments that GitHub generates for a page's headings.
func anchors(text string) []string {
	var out []string
	for _, heading := range headingPattern.FindAllStringSubmatch(text, -1) {
		plain := notInAnchor.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading[1])), "")
		out = append(out, strings.ReplaceAll(plain, " ", "-"))
	}
	return out
}

// TestLinks checks each link within the repository, including the heading.
func TestLinks(t *testing.T) {
	for _, p := range readPages(t) {
		for _, link := range linkPattern.FindAllStringSubmatch(p.text, -1) {
			if strings.Contains(link[1], "://") {
				continue
			}
			path, fragment, _ := strings.Cut(link[1], "#")
			target := filepath.Join(root, filepath.Dir(p.path), path)
			if path == "" {
				target = filepath.Join(root, p.path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: link %s: %v", p.path, link[1], err)
				continue
			}
			// GitHub and the site show such a picture in one mode only.
			if mode := ofMode.FindStringSubmatch(fragment); fragment == "" || mode != nil && strings.HasSuffix(path, "-"+mode[1]+".webp") {
				continue
			}
			content, err := os.ReadFile(target)
			if err != nil {
				t.Errorf("%s: link %s: %v", p.path, link[1], err)
			} else if !slices.Contains(anchors(string(content)), fragment) {
				t.Errorf("%s: link %s: no such heading", p.path, link[1])
			}
		}
	}
}

// TestManifests decodes each object in a YAML block, and refuses unknown fields. A block
// without a kind is a part of an object, and must only be valid YAML.
func TestManifests(t *testing.T) {
	scheme := runtime.NewScheme()
	must.Succeed(t, errors.Join(appsv1.AddToScheme(scheme), corev1.AddToScheme(scheme), networkingv1.AddToScheme(scheme), rbacv1.AddToScheme(scheme), v1alpha1.Install(scheme)))
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	objects := 0
	for _, p := range readPages(t) {
		for _, block := range p.yaml {
			documents := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(block)))
			for {
				document, err := documents.Read()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatalf("%s: %v", p.path, err)
				}
				if !bytes.Contains(document, []byte("kind:")) {
					var part map[string]any
					if err := yaml.UnmarshalStrict(document, &part); err != nil {
						t.Errorf("%s: %v in:\n%s", p.path, err, document)
					}
					continue
				}
				objects++
				if _, _, err := decoder.Decode(document, nil, nil); err != nil {
					t.Errorf("%s: %v in:\n%s", p.path, err, document)
				}
			}
		}
	}
	if objects == 0 {
		t.Error("no manifest in the documentation")
	}
}

var testLink = regexp.MustCompile(`\[(Test\w+)\]\(([^)]+)\)`)

// TestIndexListsEveryPage checks that the reader of the first page finds all others.
func TestIndexListsEveryPage(t *testing.T) {
	index := string(must.Read(t, filepath.Join(root, "docs/index.md")))
	for _, p := range readPages(t) {
		path, inDocs := strings.CutPrefix(p.path, "docs/")
		// The API reference and the notes on releases have pages of their own that list them.
		if !inDocs || path == "index.md" || strings.HasPrefix(path, "reference/") || strings.HasPrefix(path, "releases/") {
			continue
		}
		if !strings.Contains(index, "]("+path) {
			t.Errorf("docs/index.md doesn't list %s", path)
		}
	}
}

// TestNamedTests checks that each test that a page names is in the file that it links to,
// that some pages name tests, and that the tests' own page names one for each of upstream's faults.
func TestNamedTests(t *testing.T) {
	texts := map[string]string{}
	for _, page := range readPages(t) {
		texts[page.path] = page.text
		for _, link := range testLink.FindAllStringSubmatch(page.text, -1) {
			content, err := os.ReadFile(filepath.Join(root, filepath.Dir(page.path), link[2]))
			if err != nil || !bytes.Contains(content, []byte("\nfunc "+link[1]+"(t *testing.T) {\n")) {
				t.Errorf("%s: no test %s in %s: %v", page.path, link[1], link[2], err)
			}
		}
	}
	if path := "docs/threat-model.md"; !testLink.MatchString(texts[path]) {
		t.Errorf("%s names no test", path)
	}
	const faults = 28
	for fault := 1; fault <= faults; fault++ {
		row := regexp.MustCompile(fmt.Sprintf(`(?m)^\| %d \| .*\[TestUpstreamFault(\d\dAnd)?%02d`, fault, fault))
		if !row.MatchString(texts["tests/README.md"]) {
			t.Errorf("no test is named for fault %d", fault)
		}
	}
}

// makeCommand finds a command of make in a line of code or between backticks.
var makeCommand = regexp.MustCompile("(?m)(?:^[ \\t]*(?:[$] )?(?:[A-Z_]+=\\S+ )*|`)make ([^`\n|;&<>#]+)")

// TestTargets checks that each target of make on a page or in a message exists, and that each variable that a command sets is known to
// the files of make, or to a script that they run.
func TestTargets(t *testing.T) {
	targets := makefile.Targets(t, root)
	variables := usedByMake(t)
	found := 0
	for _, p := range readPages(t) {
		for _, command := range makeCommand.FindAllStringSubmatch(string(must.Read(t, filepath.Join(root, p.path))), -1) {
			words := strings.Fields(regexp.MustCompile(`"[^"]*"`).ReplaceAllString(command[1], ""))
			if len(words) > 1 && strings.HasPrefix(command[0], "make") && !targets[words[0]] && !strings.Contains(command[1], "=") {
				continue // a sentence
			}
			for _, word := range words {
				variable, _, set := strings.Cut(word, "=")
				switch {
				case strings.HasPrefix(word, "-") || word == "…":
				case !set && !targets[word]:
					t.Errorf("%s: %s: no target %s in the Makefile", p.path, command[0], word)
				case set && !variables[variable]:
					t.Errorf("%s: %s: no file of make uses %s", p.path, command[0], variable)
				default:
					found++
				}
			}
		}
	}
	if found < 100 {
		t.Errorf("found only %d targets and variables", found)
	}
	inMessage := regexp.MustCompile("(?:`|\\brun )make ([a-z][a-z0-9-]*)")
	inspect(t, func(path string, n ast.Node) {
		text, _ := textOf(t, n)
		for _, target := range inMessage.FindAllStringSubmatch(text, -1) {
			if !targets[target[1]] {
				t.Errorf("%s: %q: no target %s in the Makefile", path, text, target[1])
			}
		}
	})
}

// usedByMake returns the words in capitals in the Makefile, what it includes, and the scripts.
func usedByMake(t *testing.T) map[string]bool {
	t.Helper()
	used := map[string]bool{}
	for _, pattern := range []string{"Makefile", "hack/make/*.mk", "hack/*.sh", "hack/*/*.sh", "examples/Makefile"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		must.Succeed(t, err)
		for _, file := range files {
			for _, word := range regexp.MustCompile(`\b[A-Z][A-Z0-9_]+\b`).FindAllString(string(must.Read(t, file)), -1) {
				used[word] = true
			}
		}
	}
	return used
}

// TestConfigurationKeys checks that each key of the ConfigMap is documented.
func TestConfigurationKeys(t *testing.T) {
	manifest := must.Read(t, filepath.Join(root, "config/bpfman-deployment/config.yaml"))
	var configMap corev1.ConfigMap
	must.Succeed(t, yaml.UnmarshalStrict(manifest, &configMap))
	page := must.Read(t, filepath.Join(root, "docs/configuration.md"))
	for key := range configMap.Data {
		if !bytes.Contains(page, []byte("| `"+key+"` |")) {
			t.Errorf("docs/configuration.md: no key %s", key)
		}
	}
}

// TestWalkIsCurrent checks that each file of this repository that the pages for contributors name exists, and that the
// walk of an XdpProgram has as many files as it says.
func TestWalkIsCurrent(t *testing.T) {
	named := regexp.MustCompile("`((?:agent|apis|charts|cli|config|csi|gobpfman|hack|internal|operator|tests)/[a-z0-9_./-]+\\.[a-z]+)`")
	for _, page := range []string{"docs/architecture.md", "docs/adding.md"} {
		text := string(must.Read(t, filepath.Join(root, page)))
		for _, name := range named.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(root, name[1])); err != nil {
				t.Errorf("%s names %s: %v", page, name[1], err)
			}
		}
		if page != "docs/architecture.md" {
			continue
		}
		walk := regexp.MustCompile(`(?s)goes through these (\d+) files, .*?\n\n(.*?)\n\n`).FindStringSubmatch(text)
		if walk == nil {
			t.Fatalf("%s has no walk", page)
		}
		if files := named.FindAllString(walk[2], -1); strconv.Itoa(len(files)) != walk[1] {
			t.Errorf("the walk has %d files, not %s", len(files), walk[1])
		}
	}
}
