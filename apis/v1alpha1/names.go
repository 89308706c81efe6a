// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Labels of a BpfProgram or BpfNsProgram. Their values are results of LabelValue.
const (
	// LabelOwnedByProgram contains the name of the owner, which is the user's object.
	LabelOwnedByProgram = "bpfman.io/ownedByProgram"
	// LabelAppProgramID contains the id of the program's member in an application. For a
	// program that isn't in an application, the label is present and empty.
	LabelAppProgramID = "bpfman.io/appProgramId"
	// LabelHostname contains the node's name, not its hostname.
	LabelHostname = "kubernetes.io/hostname"
	// LabelOwnerKind contains the owner's kind.
	LabelOwnerKind = "bpfman.io/ownerKind"
)

// Labels and annotations of a ControllerRevision that contains a revision of a user's object.
const (
	// LabelRevisionOf contains the UID of the object.
	LabelRevisionOf = "bpfman.io/revision-of"
	// LabelRevisionHash contains the hash of the revision: see [RolloutStatus].
	LabelRevisionHash = "bpfman.io/revision-hash"
	// AnnotationReturnedIn contains the object's generation in which a revision became the newest one again.
	AnnotationReturnedIn = "bpfman.io/returned-in-generation"
)

// In the description of an attach point in a BpfProgramLink, these are before the namespace and name of the pod with the
// interface, and before those of the pod with the container, which the container's name follows.
const (
	InPod       = " in pod "
	OfContainer = " of container "
)

// AgentFieldManager is the field manager of the objects that agents write. The API
// server derives it from their user agent.
const AgentFieldManager = "bpfman-agent"

// AnnotationProgramID contains the kernel's id of the program, in decimal. A BpfProgram
// or BpfNsProgram has it.
const AnnotationProgramID = "bpfman.io/ProgramId"

// AnnotationObjectHealth contains the part of a BpfNode's status that the health of
// nodes in rollouts depends on. The operator reads only the metadata of BpfNodes, because
// they are large.
const AnnotationObjectHealth = "bpfman.io/object-health"

// AnnotationReplacePinnedMaps allows the agent, with the value "true" on a
// cluster-scoped object of a user, to remove pins of maps. It concerns maps that the
// object's bytecode pins by name (LIBBPF_PIN_BY_NAME) and declares with another shape
// than the pinned maps have. The agent removes them when no other program uses them. The
// content of the maps is lost.
const AnnotationReplacePinnedMaps = "bpfman.io/replace-pinned-maps"

// AnnotationRestartedAt makes each node try a version of an object of a user again that it rolled back, when its value
// changes. By convention, it is a time.
const AnnotationRestartedAt = "bpfman.io/restartedAt"

// Annotations of an object of a user that control its rollout.
const (
	// AnnotationRolloutPaused, with the value "true", pauses the rollout: no other node changes.
	AnnotationRolloutPaused = "bpfman.io/rollout-paused"
	// AnnotationRolloutResumed resumes a rollout that waits after a step or is halted. Its value is the revision and the
	// step: see [RolloutStatus.Position].
	AnnotationRolloutResumed = "bpfman.io/rollout-resumed"
)

// Metadata that the daemon stores with each program that the agent loads. The CSI plugin
// finds programs by it, and the agent recognizes its own programs.
const (
	// MetadataUUID is the UID of the owner, which is the user's object.
	MetadataUUID = "bpfman.io/uuid"
	// MetadataProgramName is the name of the owner.
	MetadataProgramName = "bpfman.io/ProgramName"
	// MetadataNamespace is the namespace of the owner. A cluster-scoped owner doesn't
	// have it.
	MetadataNamespace = "bpfman.io/namespace"
	// MetadataKind is the kind of the owner.
	MetadataKind = "bpfman.io/kind"
	// MetadataLoad is a hash of what was loaded. If it differs from the hash of the
	// current object, the program has to be reloaded.
	MetadataLoad = "bpfman.io/load"
	// MetadataImage is the reference of the image in the owner. It is absent, like
	// MetadataDigest and MetadataManifest, if the digest of what is loaded isn't known.
	MetadataImage = "bpfman.io/image"
	// MetadataDigest is the digest that the image's reference was resolved to.
	MetadataDigest = "bpfman.io/digest"
	// MetadataManifest is the digest of the manifest that is loaded.
	MetadataManifest = "bpfman.io/manifest"
	// MetadataUnshared names the global variables of which each function has its own copy, although several use them, because
	// the daemon doesn't share them.
	MetadataUnshared = "bpfman.io/unshared"
	// MetadataActualType is the prefix of the key that says that a function is a return probe. The name of the function
	// follows, and the value is kretprobe or uretprobe. One of the daemons requires it. The other one uses the section
	// in the object, and ignores it.
	MetadataActualType = "bpfman.io/actual-type:"
)

// MaxDaemonResponse is the limit of the components of a node for responses of the
// daemon, in bytes. The daemon's list repeats the global data of an object for each of
// its programs. The agent keeps the list below the limit.
const MaxDaemonResponse = 64 << 20

// The CSI driver, and the attributes of its volumes.
const (
	// CSIDriverName is the name of the CSI driver.
	CSIDriverName = "csi.bpfman.io"
	// VolumeAttributeProgram names the program whose maps to mount.
	VolumeAttributeProgram = "csi.bpfman.io/program"
	// VolumeAttributeApplication is another name of VolumeAttributeProgram.
	VolumeAttributeApplication = "csi.bpfman.io/application"
	// VolumeAttributeMaps lists the maps to mount, separated by commas.
	VolumeAttributeMaps = "csi.bpfman.io/maps"
	// VolumeAttributeKind is the program's kind. It is only needed if programs of
	// several kinds have the name.
	VolumeAttributeKind = "csi.bpfman.io/kind"
	// VolumeAttributeFollow says whether the volume shows the program's new maps after a
	// reload: "true", which is the default, or "false" to keep the maps that the pod had
	// when it started.
	VolumeAttributeFollow = "csi.bpfman.io/follow"
)

// IsDispatcher reports whether a program can be a dispatcher of bpfman v0.6, by the name
// of its function. A dispatcher runs other programs, and belongs to no object.
func IsDispatcher(function string) bool {
	return function == "xdp_dispatcher" || function == "tc_dispatcher"
}

const labelHashLength = 8

// LabelValue returns s if it is a valid label value. Otherwise, it removes invalid
// characters, truncates the rest, and appends a hash of s. This converts names of
// objects (253 characters) and of functions (C++ and Go symbols) to labels, and equal
// names result in equal labels.
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

// NodeOfLabel returns the name of the node that a report has as its LabelHostname, or
// an empty string if the label can be the beginning of a name, with a hash.
func NodeOfLabel(label string) string {
	const surelyName = 50 // a label with a hash is longer
	if len(label) > surelyName {
		return ""
	}
	return label
}

func isAlphanumeric(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
}
