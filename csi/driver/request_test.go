// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package driver

import (
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// publishRequest returns the kubelet's request for a pod in namespace team.
func publishRequest() *csi.NodePublishVolumeRequest {
	return &csi.NodePublishVolumeRequest{
		VolumeId:   "csi-0123456789abcdef",
		TargetPath: "/var/lib/kubelet/pods/uid/volumes/kubernetes.io~csi/maps/mount",
		VolumeCapability: &csi.VolumeCapability{
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{VolumeMountGroup: "2000"}},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		},
		VolumeContext: map[string]string{
			v1alpha1.VolumeAttributeProgram: "counter",
			v1alpha1.VolumeAttributeMaps:    "counters",
			attributeNamespace:              "team",
			attributePod:                    "reader-0",
			attributeServiceAccount:         "reader",
		},
	}
}

func TestParsePublication(t *testing.T) {
	p, err := parsePublication(publishRequest())
	if err != nil {
		t.Fatal(err)
	}
	if p.query.Name != "counter" || p.query.Namespace != "team" || p.query.Kind != "" || p.pod.Name != "reader-0" ||
		p.pod.ServiceAccount != "reader" || !slices.Equal(p.maps, []string{"counters"}) ||
		p.access.Group == nil || *p.access.Group != 2000 || p.access.ReadOnly || !p.follow {
		t.Errorf("publication %+v", p)
	}
	// The object can also be named as an application, or in both ways.
	request := publishRequest()
	request.VolumeContext[v1alpha1.VolumeAttributeApplication] = "counter"
	for range 2 {
		if p, err := parsePublication(request); err != nil || p.query.Name != "counter" {
			t.Errorf("%v: %+v", err, p.query)
		}
		delete(request.VolumeContext, v1alpha1.VolumeAttributeProgram)
	}
}

// CSI allows volume ids of 128 bytes.
func TestLengthOfNames(t *testing.T) {
	for length, want := range map[int]bool{1: true, maxVolumeID: true, maxVolumeID + 1: false} {
		if err := checkVolume(strings.Repeat("x", length), "/target"); (err == nil) != want {
			t.Errorf("an id of %d bytes: %v", length, err)
		}
	}
}

func TestParsePublicationRefuses(t *testing.T) {
	attribute := func(key, value string) func(*csi.NodePublishVolumeRequest) {
		return func(r *csi.NodePublishVolumeRequest) { r.VolumeContext[key] = value }
	}
	tests := map[string]struct {
		spoil func(*csi.NodePublishVolumeRequest)
		says  string
	}{
		"no volume id":        {func(r *csi.NodePublishVolumeRequest) { r.VolumeId = "" }, "volume id"},
		"volume id as a path": {func(r *csi.NodePublishVolumeRequest) { r.VolumeId = "../x" }, "volume id"},
		"volume id of 4 kB":   {func(r *csi.NodePublishVolumeRequest) { r.VolumeId = strings.Repeat("x", 4096) }, "volume id"},
		"no target":           {func(r *csi.NodePublishVolumeRequest) { r.TargetPath = "" }, "target path"},
		"no capability":       {func(r *csi.NodePublishVolumeRequest) { r.VolumeCapability = nil }, "volume capability"},
		"block volume": {func(r *csi.NodePublishVolumeRequest) {
			r.VolumeCapability.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
		}, "mount"},
		"group by name":        {func(r *csi.NodePublishVolumeRequest) { r.VolumeCapability.GetMount().VolumeMountGroup = "wheel" }, "wheel"},
		"negative group":       {func(r *csi.NodePublishVolumeRequest) { r.VolumeCapability.GetMount().VolumeMountGroup = "-1" }, "-1"},
		"no group to a kernel": {func(r *csi.NodePublishVolumeRequest) { r.VolumeCapability.GetMount().VolumeMountGroup = "4294967295" }, "4294967295"},
		"no pod info":          {attribute(attributeNamespace, ""), "podInfoOnMount"},
		"no program":           {attribute(v1alpha1.VolumeAttributeProgram, ""), v1alpha1.VolumeAttributeProgram},
		"program as a path":    {attribute(v1alpha1.VolumeAttributeProgram, "../counter"), v1alpha1.VolumeAttributeProgram},
		"program of 4 kB":      {attribute(v1alpha1.VolumeAttributeProgram, strings.Repeat("x", 4096)), "longer"},
		"program with NUL":     {attribute(v1alpha1.VolumeAttributeProgram, "a\x00b"), "not a name"},
		"two programs":         {attribute(v1alpha1.VolumeAttributeApplication, "other"), "name different objects"},
		"application as a path": {func(r *csi.NodePublishVolumeRequest) {
			delete(r.VolumeContext, v1alpha1.VolumeAttributeProgram)
			r.VolumeContext[v1alpha1.VolumeAttributeApplication] = "../counter"
		}, v1alpha1.VolumeAttributeApplication},
		"kind as a path":   {attribute(v1alpha1.VolumeAttributeKind, "a/b"), v1alpha1.VolumeAttributeKind},
		"no maps":          {attribute(v1alpha1.VolumeAttributeMaps, " "), v1alpha1.VolumeAttributeMaps},
		"map as a path":    {attribute(v1alpha1.VolumeAttributeMaps, "a,../b"), "../b"},
		"absolute map":     {attribute(v1alpha1.VolumeAttributeMaps, "/etc/passwd"), "/etc/passwd"},
		"map of dots":      {attribute(v1alpha1.VolumeAttributeMaps, ".."), "not a name"},
		"map without name": {attribute(v1alpha1.VolumeAttributeMaps, "a,,b"), "missing"},
		"map twice":        {attribute(v1alpha1.VolumeAttributeMaps, "a, b ,a"), "listed twice"},
		"section twice":    {attribute(v1alpha1.VolumeAttributeMaps, ".data.a,data_a"), "listed twice"},
		"all and one":      {attribute(v1alpha1.VolumeAttributeMaps, "*,a"), "can't be combined"},
		"follow maybe":     {attribute(v1alpha1.VolumeAttributeFollow, "maybe"), v1alpha1.VolumeAttributeFollow},
		"too many maps":    {attribute(v1alpha1.VolumeAttributeMaps, strings.Repeat("a,", maxMaps)+"b"), "more than"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			request := publishRequest()
			test.spoil(request)
			if _, err := parsePublication(request); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("error %v, want one that says %q", err, test.says)
			}
		})
	}
}

func TestParseMaps(t *testing.T) {
	for list, want := range map[string][]string{
		"*":             nil,
		" * ":           nil,
		"a":             {"a"},
		" a ,b\t, c d ": {"a", "b", "c d"},
		".rodata":       {".rodata"}, // unknown, but only the daemon's pins can show that
	} {
		if names, err := parseMaps(list); err != nil || !slices.Equal(names, want) {
			t.Errorf("parseMaps(%q) = %q, %v", list, names, err)
		}
	}
}

func TestParseAccess(t *testing.T) {
	capability := publishRequest().GetVolumeCapability()
	if result, err := parseAccess(capability, true); err != nil || !result.ReadOnly {
		t.Errorf("read-only request: %+v, %v", result, err)
	}
	capability.AccessMode.Mode = csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY
	if result, err := parseAccess(capability, false); err != nil || !result.ReadOnly {
		t.Errorf("reader-only mode: %+v, %v", result, err)
	}
	capability.GetMount().VolumeMountGroup = ""
	if result, err := parseAccess(capability, false); err != nil || result.Group != nil {
		t.Errorf("no group: %+v, %v", result, err)
	}
}

func FuzzParseMaps(f *testing.F) {
	for _, list := range []string{"a,b", "*", "a,,", "../a", ".rodata", "a\x00", "a/b", ".", "\xff", strings.Repeat("x", 300)} {
		f.Add(list)
	}
	f.Fuzz(func(t *testing.T, list string) {
		names, err := parseMaps(list)
		if err != nil {
			return
		}
		if len(names) == 0 && strings.TrimSpace(list) != allMaps {
			t.Errorf("parseMaps(%q) means all maps", list)
		}
		for i, name := range names {
			if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00,") ||
				len(name) > maxName || slices.Contains(names[:i], name) {
				t.Errorf("parseMaps(%q) = %q", list, names)
			}
		}
	})
}
