// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Labels of a BpfProgram or BpfNsProgram. Each value goes through LabelValue.
const (
	// LabelOwnedByProgram holds the name of the owner, the user's object.
	LabelOwnedByProgram = "bpfman.io/ownedByProgram"
	// LabelAppProgramID holds the id of the member of an application that this
	// program is; it is empty, but present, for a program of its own.
	LabelAppProgramID = "bpfman.io/appProgramId"
	// LabelHostname holds the node's name (not its hostname).
	LabelHostname = "kubernetes.io/hostname"
	// LabelOwnerKind holds the owner's kind.
	LabelOwnerKind = "bpfman.io/ownerKind"
)

// AgentFieldManager is the field manager of what agents write, which the API
// server takes from their user agent.
const AgentFieldManager = "bpfman-agent"

// AnnotationProgramID on a BpfProgram or BpfNsProgram holds the kernel's id of
// the program, in decimal.
const AnnotationProgramID = "bpfman.io/ProgramId"

// AnnotationReplacePinnedMaps on a cluster-scoped user object, with the value
// "true", lets the agent remove pins of maps that the object's bytecode pins by
// name (LIBBPF_PIN_BY_NAME) and declares in another shape than they have, once
// no other program uses them. What the maps hold is lost.
const AnnotationReplacePinnedMaps = "bpfman.io/replace-pinned-maps"

// Metadata that the daemon keeps with each program that the agent loads. The
// CSI plugin finds programs by it and the agent recognises its own.
const (
	// MetadataUUID is the UID of the owner, the user's object.
	MetadataUUID = "bpfman.io/uuid"
	// MetadataProgramName is the owner's name.
	MetadataProgramName = "bpfman.io/ProgramName"
	// MetadataNamespace is the owner's namespace, absent for a cluster-scoped
	// owner.
	MetadataNamespace = "bpfman.io/namespace"
	// MetadataKind is the owner's kind.
	MetadataKind = "bpfman.io/kind"
	// MetadataLoad is a hash of what was loaded: another value means that the
	// program must be loaded anew.
	MetadataLoad = "bpfman.io/load"
	// MetadataImage is the image as the owner names it. It, MetadataDigest and
	// MetadataManifest are absent where the digest of what is loaded isn't known.
	MetadataImage = "bpfman.io/image"
	// MetadataDigest is the digest that the image's reference was resolved to.
	MetadataDigest = "bpfman.io/digest"
	// MetadataManifest is the digest of the manifest that is loaded.
	MetadataManifest = "bpfman.io/manifest"
)

// The CSI driver and the attributes of its volumes.
const (
	// CSIDriverName is the name of the CSI driver.
	CSIDriverName = "csi.bpfman.io"
	// VolumeAttributeProgram names the program whose maps are wanted.
	VolumeAttributeProgram = "csi.bpfman.io/program"
	// VolumeAttributeMaps lists the maps that are wanted, separated by commas.
	VolumeAttributeMaps = "csi.bpfman.io/maps"
	// VolumeAttributeKind gives the program's kind where names collide.
	VolumeAttributeKind = "csi.bpfman.io/kind"
	// VolumeAttributeFollow says whether the volume shows the program's new maps
	// when the program is loaded anew: "true", the default, or "false" to keep
	// those that the pod got at its start.
	VolumeAttributeFollow = "csi.bpfman.io/follow"
)

// IsDispatcher tells by its function's name that a program may be a dispatcher of
// bpfman v0.6's, which runs other programs and belongs to no object.
func IsDispatcher(function string) bool {
	return function == "xdp_dispatcher" || function == "tc_dispatcher"
}

const labelHashLength = 8

// LabelValue returns s where it is a valid label value; else what can be kept of
// it, cut, and followed by a hash of s. Names of objects (253 characters) and of
// functions (C++ and Go symbols) become labels this way, and equal names become
// equal labels.
func LabelValue(s string) string {
	if len(validation.IsValidLabelValue(s)) == 0 {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	hash := hex.EncodeToString(sum[:])[:labelHashLength]

	readable := strings.Map(func(r rune) rune {
		if isAlphanumeric(r) || strings.ContainsRune("-_.", r) {
			return r
		}
		return '-'
	}, s)
	readable = readable[:min(len(readable), validation.LabelValueMaxLength-labelHashLength-1)]
	readable = strings.TrimFunc(readable, func(r rune) bool { return !isAlphanumeric(r) })
	if readable == "" {
		return hash
	}
	return readable + "-" + hash
}

func isAlphanumeric(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
}
