// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package images

import (
	"bytes"
	"io"
	"io/fs"
	"log"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// publisher returns a publisher of an image with the text, whose signatures are only printed. TestRelease of
// hack/release makes real ones.
func publisher(t *testing.T, r Release, text string, latest bool) (Publisher, *bytes.Buffer) {
	t.Helper()
	layout, err := Open(filepath.Join(t.TempDir(), "images"))
	if err != nil {
		t.Fatal(err)
	}
	for _, repository := range []string{"first", "second"} {
		index, err := r.Data(repository, map[string]fs.FS{"/": fstest.MapFS{"file": {Data: []byte(repository + text)}}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := layout.Put(r.Name(repository), index); err != nil {
			t.Fatal(err)
		}
	}
	chart, err := r.Chart(chartOf(t, r.Version))
	if err != nil {
		t.Fatal(err)
	}
	if err := layout.Put(r.ChartName(), chart); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	return Publisher{Layout: layout, Cosign: "true", Latest: latest, Out: &out}, &out
}

func TestPublish(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithReferrersSupport(true)))
	defer server.Close()
	r := example(strings.TrimPrefix(server.URL, "http://") + "/path")
	tags := func(repository string) []string {
		t.Helper()
		of, err := name.NewRepository(r.Registry + "/" + repository)
		if err != nil {
			t.Fatal(err)
		}
		tags, err := remote.List(of)
		if err != nil {
			t.Fatal(err)
		}
		return tags
	}

	p, out := publisher(t, r, "one", false)
	if err := p.Publish(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(out.String(), "pushed "); got != 3 || strings.Count(out.String(), "cosign sign ") != 3 {
		t.Errorf("%d are pushed:\n%s", got, out)
	}
	if got := tags("first"); !slices.Equal(got, []string{"v1.2.3"}) {
		t.Errorf("the tags are %q", got)
	}

	// The same content is only tagged. A chart is found by its version.
	p, out = publisher(t, r, "one", true)
	if err := p.Publish(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(out.String(), "pushed "); got != 2 || !slices.Equal(tags("second"), []string{"latest", "v1.2.3"}) {
		t.Errorf("%d are pushed, and the tags are %q:\n%s", got, tags("second"), out)
	}
	if got := tags("charts/bpfman-operator"); !slices.Equal(got, []string{"1.2.3"}) {
		t.Errorf("the chart's tags are %q", got)
	}

	p, out = publisher(t, r, "one", true)
	if err := p.Publish(t.Context()); err != nil || strings.Contains(out.String(), "pushed ") {
		t.Errorf("a version is pushed again: %v\n%s", err, out)
	}

	// Another content is refused before anything is pushed.
	p, out = publisher(t, r, "another", true)
	if err := p.Publish(t.Context()); err == nil || !strings.Contains(err.Error(), "is already published") || out.Len() > 0 {
		t.Errorf("another content is published: %v\n%s", err, out)
	}
}
