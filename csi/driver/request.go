// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package driver

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/csi/access"
	"github.com/bpfman/bpfman-operator/csi/maps"
	"github.com/bpfman/bpfman-operator/csi/program"
	"github.com/bpfman/bpfman-operator/internal/globals"
)

// The attributes that the kubelet adds because CSIDriver has podInfoOnMount. They
// override attributes of the same name in the pod.
const (
	attributePod            = "csi.storage.k8s.io/pod.name"
	attributeNamespace      = "csi.storage.k8s.io/pod.namespace"
	attributeServiceAccount = "csi.storage.k8s.io/serviceAccount.name"
)

const (
	allMaps = "*"
	// maxName is the maximum length of names in Kubernetes and file systems, in bytes.
	maxName = 253
	// maxVolumeID is CSI's limit, in bytes.
	maxVolumeID = 128
	maxMaps     = 1024
)

// publication is a validated NodePublishVolumeRequest.
type publication struct {
	volumeID, target string
	pod              access.Pod
	query            program.Query
	// maps are the names of the wanted maps. If it is empty, all maps are wanted.
	maps   []string
	access maps.Access
	// follow means that the volume shows the maps of the currently loaded program,
	// instead of those that it had at the start.
	follow bool
}

func (p publication) volume() maps.Volume { return maps.Volume{ID: p.volumeID, Target: p.target} }

func parsePublication(request *csi.NodePublishVolumeRequest) (publication, error) {
	attributes := request.GetVolumeContext()
	p := publication{
		volumeID: request.GetVolumeId(),
		target:   request.GetTargetPath(),
		pod: access.Pod{
			Namespace:      attributes[attributeNamespace],
			Name:           attributes[attributePod],
			ServiceAccount: attributes[attributeServiceAccount],
		},
		query: program.Query{
			Name:      cmp.Or(attributes[v1alpha1.VolumeAttributeProgram], attributes[v1alpha1.VolumeAttributeApplication]),
			Namespace: attributes[attributeNamespace],
			Kind:      attributes[v1alpha1.VolumeAttributeKind],
		},
	}
	if err := checkVolume(p.volumeID, p.target); err != nil {
		return p, err
	}
	if p.pod.Namespace == "" {
		return p, fmt.Errorf("attribute %s is missing: does CSIDriver %s have podInfoOnMount?",
			attributeNamespace, v1alpha1.CSIDriverName)
	}
	named := v1alpha1.VolumeAttributeProgram
	if application := attributes[v1alpha1.VolumeAttributeApplication]; application != "" {
		if p.query.Name != application {
			return p, fmt.Errorf("attributes %s and %s name different objects: set one of them", named, v1alpha1.VolumeAttributeApplication)
		}
		named = v1alpha1.VolumeAttributeApplication
	}
	if err := checkName(p.query.Name, maxName); err != nil {
		return p, fmt.Errorf("attribute %s: %w", named, err)
	}
	if p.query.Kind != "" {
		if err := checkName(p.query.Kind, maxName); err != nil {
			return p, fmt.Errorf("attribute %s: %w", v1alpha1.VolumeAttributeKind, err)
		}
	}
	var err error
	if p.maps, err = parseMaps(attributes[v1alpha1.VolumeAttributeMaps]); err != nil {
		return p, fmt.Errorf("attribute %s: %w", v1alpha1.VolumeAttributeMaps, err)
	}
	if p.follow, err = parseFollow(attributes[v1alpha1.VolumeAttributeFollow]); err != nil {
		return p, fmt.Errorf("attribute %s: %w", v1alpha1.VolumeAttributeFollow, err)
	}
	if p.access, err = parseAccess(request.GetVolumeCapability(), request.GetReadonly()); err != nil {
		return p, fmt.Errorf("volume capability: %w", err)
	}
	return p, nil
}

// checkVolume validates the parts that all requests about a volume have. [maps.Volumes]
// decides where the target can be.
func checkVolume(id, target string) error {
	if err := checkName(id, maxVolumeID); err != nil {
		return fmt.Errorf("volume id: %w", err)
	}
	if target == "" {
		return errors.New("target path is missing")
	}
	return nil
}

// checkName validates that a name from a request is one component of a path.
func checkName(name string, limit int) error {
	switch {
	case name == "":
		return errors.New("name is missing")
	case len(name) > limit:
		return fmt.Errorf("name is longer than %d bytes: %q…", limit, name[:32])
	case name == "." || name == ".." || !utf8.ValidString(name),
		strings.ContainsRune(name, '/'), strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("%q is not a name", name)
	}
	return nil
}

// parseMaps splits a list of map names. It returns no names if all maps are wanted.
func parseMaps(list string) ([]string, error) {
	if strings.TrimSpace(list) == "" {
		return nil, fmt.Errorf("no maps are specified: list them, separated by commas, or use %q", allMaps)
	}
	if strings.TrimSpace(list) == allMaps {
		return nil, nil
	}
	if strings.Count(list, ",") >= maxMaps {
		return nil, fmt.Errorf("more than %d maps", maxMaps)
	}
	var names []string
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		if err := checkName(name, maxName); err != nil {
			return nil, err
		}
		if name == allMaps {
			return nil, fmt.Errorf("%q selects all maps, and can't be combined with names", allMaps)
		}
		if slices.ContainsFunc(names, func(other string) bool { return globals.File(other) == globals.File(name) }) {
			return nil, fmt.Errorf("map %q is listed twice", name)
		}
		names = append(names, name)
	}
	return names, nil
}

func parseFollow(value string) (bool, error) {
	switch value {
	case "", "true":
		return true, nil
	case "false":
		return false, nil
	default:
		return false, fmt.Errorf("%q is neither \"true\" nor \"false\"", value)
	}
}

func parseAccess(capability *csi.VolumeCapability, readOnly bool) (maps.Access, error) {
	if capability.GetMount() == nil {
		return maps.Access{}, errors.New("not of type mount")
	}
	mode := capability.GetAccessMode().GetMode()
	readers := mode == csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY ||
		mode == csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	result := maps.Access{ReadOnly: readOnly || readers}
	if group := capability.GetMount().GetVolumeMountGroup(); group != "" {
		// Kubernetes limits group ids to 31 bits.
		gid, err := strconv.ParseUint(group, 10, 31)
		if err != nil {
			return maps.Access{}, fmt.Errorf("volume mount group %q is not a group id", group)
		}
		id := uint32(gid)
		result.Group = &id
	}
	return result, nil
}
