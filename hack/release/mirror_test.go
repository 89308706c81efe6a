// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"archive/tar"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// mirror.sh copies each image of a release, and what it writes for the chart names each image that the chart deploys.
func TestMirror(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	script, err := os.ReadFile("../install/mirror.sh")
	if err != nil {
		t.Fatal(err)
	}
	digest := func(n int) string { return fmt.Sprintf("sha256:%064d", n) }
	const from = "ghcr.io/example"
	var index, manifests strings.Builder
	for n, name := range []string{
		from + "/bpfman-operator:v1.2.3", from + "/bpfman-agent:v1.2.3", from + "/bpfman-csi:v1.2.3", from + "/bpfman-inspector:v1.2.3",
		from + "/bpfman-map-exporter:v1.2.3", from + "/bytecode/counter:v1.2.3", "quay.io/bpfman/bpfman:v0.6.0", "registry.k8s.io/sig-storage/csi-node-driver-registrar:v2.13.0",
	} {
		fmt.Fprintf(&index, `{"digest": "%s", "annotations": {"org.opencontainers.image.ref.name": "%s"}}`+"\n", digest(n), name)
		for key, of := range map[string]string{
			"bpfman.image": "/bpfman:", "bpfman.agent.image": "agent:", "bpfman.csi.image": "csi:", "bpfman.inspector.image": "inspector:",
			"bpfman.csi.registrar.image": "registrar:", "image": "bpfman-operator:",
		} {
			if strings.Contains(name, of) {
				fmt.Fprintf(&manifests, "  %s: %s@%s\n", key, name, digest(n))
			}
		}
	}
	archive, err := os.Create(filepath.Join(dir, "images.tar"))
	if err != nil {
		t.Fatal(err)
	}
	packed := tar.NewWriter(archive)
	if err := packed.WriteHeader(&tar.Header{Name: "index.json", Mode: 0o644, Size: int64(index.Len())}); err != nil {
		t.Fatal(err)
	}
	if _, err := packed.Write([]byte(index.String())); err != nil {
		t.Fatal(err)
	}
	if err := packed.Close(); err != nil {
		t.Fatal(err)
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	write("bpfman-all-install.yaml", manifests.String(), 0o644)
	oras := write("oras", "#!/bin/sh\n[ \"$1\" != cp ] || echo \"${5}\" >>"+filepath.Join(dir, "copied")+"\n", 0o755)
	command := exec.CommandContext(t.Context(), "bash", write("mirror.sh", string(script), 0o755), archive.Name(), "registry.example.com/all/")
	command.Env = append(os.Environ(), "ORAS="+oras)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	copied, err := os.ReadFile(filepath.Join(dir, "copied"))
	if got := strings.Fields(string(copied)); err != nil || len(got) != 8 || got[5] != "registry.example.com/all/bytecode/counter:v1.2.3" || got[6] != "registry.example.com/all/bpfman:v0.6.0" {
		t.Errorf("copied are %q, %v", got, err)
	}
	var values struct {
		Images   map[string]string `json:"images"`
		Exporter struct {
			Image string `json:"image"`
		} `json:"exporter"`
	}
	text, err := os.ReadFile(filepath.Join(dir, "mirrored", "values.yaml"))
	if err == nil {
		err = yaml.UnmarshalStrict(text, &values)
	}
	if err != nil {
		t.Fatal(err)
	}
	values.Images["exporter"] = values.Exporter.Image
	for image, n := range map[string]int{"operator": 0, "agent": 1, "csi": 2, "inspector": 3, "exporter": 4, "daemon": 6, "registrar": 7} {
		if got := values.Images[image]; !strings.HasPrefix(got, "registry.example.com/all/") || !strings.HasSuffix(got, "@"+digest(n)) {
			t.Errorf("the chart's image of %s is %q", image, got)
		}
	}
}
