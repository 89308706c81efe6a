// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package images

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"sigs.k8s.io/yaml"
)

// The media types of Helm charts: https://helm.sh/docs/topics/registries/
const (
	chartConfig  types.MediaType = "application/vnd.cncf.helm.config.v1+json"
	chartContent types.MediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// ChartName returns the name under which Helm finds the chart, whose tags have no leading v.
func (r Release) ChartName() string { return r.Registry + "/charts/bpfman-operator:" + r.Version }

// Chart returns the OCI artifact that `helm push` makes of a packaged chart, but with the time of the release.
func (r Release) Chart(packaged []byte) (v1.Image, error) {
	metadata, err := chartMetadata(packaged)
	if err != nil {
		return nil, fmt.Errorf("read the chart: %w", err)
	}
	if metadata["version"] != r.Version {
		return nil, fmt.Errorf("the chart has the version %v, not %s", metadata["version"], r.Version)
	}
	config, err := json.Marshal(metadata)
	if err != nil {
		return nil, fmt.Errorf("encode the chart's metadata: %w", err)
	}
	chart := artifact{config: config, layer: static.NewLayer(packaged, chartContent)}
	content, err := partial.Descriptor(chart.layer)
	if err != nil {
		return nil, fmt.Errorf("describe the chart: %w", err)
	}
	described, size, err := v1.SHA256(bytes.NewReader(config))
	if err != nil {
		return nil, fmt.Errorf("describe the chart's metadata: %w", err)
	}
	annotations := map[string]string{
		"org.opencontainers.image.title": "bpfman-operator", "org.opencontainers.image.version": r.Version,
		"org.opencontainers.image.source": r.Source, "org.opencontainers.image.created": r.Created.UTC().Format(time.RFC3339),
	}
	chart.manifest, err = json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Annotations: annotations,
		Config: v1.Descriptor{MediaType: chartConfig, Digest: described, Size: size}, Layers: []v1.Descriptor{*content},
	})
	if err != nil {
		return nil, fmt.Errorf("encode the chart's manifest: %w", err)
	}
	return partial.CompressedToImage(chart)
}

// chartMetadata returns Chart.yaml of a packaged chart.
func chartMetadata(packaged []byte) (map[string]any, error) {
	unzipped, err := gzip.NewReader(bytes.NewReader(packaged))
	if err != nil {
		return nil, err
	}
	for files := tar.NewReader(unzipped); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil, errors.New("it has no Chart.yaml")
		} else if err != nil {
			return nil, err
		}
		if _, name, _ := strings.Cut(header.Name, "/"); name != "Chart.yaml" {
			continue
		}
		text, err := io.ReadAll(files)
		if err != nil {
			return nil, err
		}
		var metadata map[string]any
		return metadata, yaml.Unmarshal(text, &metadata)
	}
}

// artifact is an OCI artifact with a single layer, which implements partial.CompressedImageCore.
type artifact struct {
	manifest, config []byte
	layer            v1.Layer
}

func (a artifact) RawConfigFile() ([]byte, error)                         { return a.config, nil }
func (a artifact) RawManifest() ([]byte, error)                           { return a.manifest, nil }
func (artifact) MediaType() (types.MediaType, error)                      { return types.OCIManifestSchema1, nil }
func (a artifact) LayerByDigest(v1.Hash) (partial.CompressedLayer, error) { return a.layer, nil }
