// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/bpfman/bpfman-operator/operator/deploy"
	"github.com/bpfman/bpfman-operator/tests/configuration"
	"github.com/bpfman/bpfman-operator/tests/makefile"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// TestAirGappedPage follows the page about clusters without internet access up to the manifests. Its table must
// contain every image of config/default. With its overlay and the variables of its command, all images must come
// from its registry. TestWithoutInternet in tests/e2e covers the rest.
func TestAirGappedPage(t *testing.T) {
	content := must.Read(t, filepath.Join(root, "docs/air-gapped.md"))
	page := string(content)
	command := regexp.MustCompile(`(?m)^    make deploy DEPLOY=(\S+) (.*)$`).FindStringSubmatch(page)
	if command == nil {
		t.Fatal("no command deploys an overlay")
	}
	overlay, variables := command[1], strings.Fields(command[2])
	dir := t.TempDir()
	must.Succeed(t, os.CopyFS(filepath.Join(dir, "config"), os.DirFS(filepath.Join(root, "config"))))
	for _, name := range []string{"kustomization.yaml", "config.yaml"} {
		file := filepath.Join(dir, overlay, name)
		must.Succeed(t, os.MkdirAll(filepath.Dir(file), 0o700))
		must.Succeed(t, os.WriteFile(file, []byte(written(t, page, overlay+"/"+name)), 0o600))
	}

	before := imagesOf(build(t, filepath.Join(root, "config/default")))
	after := imagesOf(withImages(t, build(t, filepath.Join(dir, overlay)), variables))
	if len(before) != 6 || len(after) != len(before) {
		t.Fatalf("images %q, and on the page's cluster %q", before, after)
	}
	for i, image := range before {
		if !strings.Contains(page, "\n| `"+image+"` |") {
			t.Errorf("image %s is not in the table", image)
		}
		if !strings.HasPrefix(after[i], "registry.example.com/") {
			t.Errorf("image %s is %s on the page's cluster", image, after[i])
		}
	}

	for document := range strings.SplitSeq(build(t, filepath.Join(dir, overlay)), "\n---\n") {
		if !strings.Contains(document, "\nkind: ConfigMap\n") {
			continue
		}
		var configMap corev1.ConfigMap
		must.Succeed(t, yaml.UnmarshalStrict([]byte(document), &configMap))
		config, unknown, err := deploy.ParseConfig(configMap.Data)
		if err != nil || len(unknown) > 0 {
			t.Errorf("unknown keys %q, error %v", unknown, err)
		}
		if !strings.Contains(config.Daemon.TOML, "verify_enabled = false") || config.RegistryCA != configuration.Authority {
			t.Errorf("the daemon's file is\n%s\nand the authority\n%s", config.Daemon.TOML, config.RegistryCA)
		}
		return
	}
	t.Error("the overlay has no ConfigMap")
}

// written returns the content of a file on a page, which is the block after its name and a colon. It inserts an
// authority where the page leaves it out.
func written(t *testing.T, page, name string) string {
	t.Helper()
	_, rest, found := strings.Cut(page, "`"+name+"`:\n\n")
	if !found {
		t.Fatalf("no content of %s", name)
	}
	if fenced, ok := strings.CutPrefix(rest, "```yaml\n"); ok {
		block, _, _ := strings.Cut(fenced, "```")
		authority := "    " + strings.ReplaceAll(strings.TrimSpace(configuration.Authority), "\n", "\n    ") + "\n"
		return regexp.MustCompile(`(?s)    -----BEGIN.*-----END CERTIFICATE-----\n`).ReplaceAllString(block, authority)
	}
	var block strings.Builder
	for line := range strings.Lines(rest) {
		code, ok := strings.CutPrefix(line, "    ")
		if !ok {
			break
		}
		block.WriteString(code)
	}
	return block.String()
}

func build(t *testing.T, overlay string) string {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), overlay)
	if err != nil {
		t.Fatal(err)
	}
	text, err := resources.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// withImages replaces images like make with these variables.
func withImages(t *testing.T, manifests string, variables []string) string {
	t.Helper()
	command := makefile.Command(t, root, append([]string{"--eval", "with-images: ; @$(WITH_IMAGES)", "with-images"}, variables...)...)
	command.Stdin = strings.NewReader(manifests)
	output, err := command.Output()
	if err != nil {
		t.Fatalf("make with-images: %v", err)
	}
	return string(output)
}

// imagesOf returns the images in manifests, in the Deployment and in keys of the ConfigMap.
func imagesOf(manifests string) []string {
	var images []string
	for _, match := range regexp.MustCompile(`(?m)^ *(?:- )?(?:bpfman\.[a-z.]*)?image: "?([^ "\n]+)`).FindAllStringSubmatch(manifests, -1) {
		images = append(images, match[1])
	}
	return images
}
