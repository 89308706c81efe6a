// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package reader defines the protocol between the agent and bpfman-reader, which reads
// bytecode images: one Request on standard input and one Answer on standard output, both
// in JSON. bpfman-reader is a process for each request: it is the only part of bpfman
// that reads what a registry serves, has none of the agent's rights, and its memory is
// free again afterwards.
//
// The answer contains findings, not a verdict. Package policy decides.
//
// The process exits with status 0 if it answered, even with an Answer.Error. With any
// other status, it prints the reason to standard error. It answers within its flag
// --timeout, which is a duration with the default 30s. It reads SSL_CERT_FILE,
// SSL_CERT_DIR, and the proxy variables from its environment.
//
// If Request.Object is set, it writes the eBPF object to file descriptor 3 (ObjectFile), and the form of it that the
// daemon loads to file descriptor 4 (AdaptedFile).
package reader

import "github.com/bpfman/bpfman-operator/internal/problem"

// Command is the name of the executable. It is in the same directory as the agent's
// executable.
const Command = "bpfman-reader"

// ObjectFile is the number of the file descriptor of the image's object without its debug sections. The process
// writes it, or reads it if Request.Image is empty. AdaptedFile is the one to which it writes the object that the daemon
// loads, if that is another one.
const (
	ObjectFile  = 3
	AdaptedFile = 4
)

// Format is the number of the form in which the process writes objects for the daemon. When a new version of bpfman
// adapts objects differently, it has another number, and nodes adapt the objects in their stores again.
const Format = 6

// MaxRequest and MaxAnswer are the maximum sizes of a Request and an Answer, in bytes.
// MaxObject is the maximum size of an eBPF object, before and after its debug sections
// are removed.
const (
	MaxRequest = 16 << 20
	MaxAnswer  = 1 << 20
	MaxObject  = 32 << 20
)

// Request asks what an image contains, and who signed it.
type Request struct {
	// Image is the reference of the image, with a tag or a digest, such as
	// quay.io/acme/xdp-pass:v1. A digest takes precedence over a tag. If it is empty, the process asks no registry,
	// and describes and adapts the object in ObjectFile.
	Image string `json:"image"`
	// Credentials are the credentials for the registry. They are only sent to the host
	// of the reference, and to the one that it names for tokens.
	Credentials *Credentials `json:"credentials,omitempty"`
	// Object requests the eBPF object and what it contains, unless the image's manifest
	// is Have.
	Object bool `json:"object,omitempty"`
	// Have is the digest of the manifest whose object the caller has.
	Have string `json:"have,omitempty"`
	// Authorities are the authorities whose signatures to look for.
	Authorities []Authority `json:"authorities,omitempty"`
	// Attestations are the predicate types of the attestations to look for, each with
	// the names of the authorities whose signatures are valid.
	Attestations []Attestation `json:"attestations,omitempty"`
}

// Credentials are a user name and a password for a registry.
type Credentials struct {
	Username string `json:"username"`
	Password string `json:"password"`
}

// Authority is an authority with the material to verify its signatures.
type Authority struct {
	// Name is policy/authority: the name of the policy, and the name of the authority in
	// it.
	Name string `json:"name"`
	// Keys are public keys in PEM. A signature by any of them is valid. Either Keys or
	// Identities is set.
	Keys []string `json:"keys,omitempty"`
	// Identities are the accepted identities in certificates.
	Identities []Identity `json:"identities,omitempty"`
	// TrustedRoot is Sigstore's JSON with the certificate authorities, logs, and
	// timestamp authorities. With Keys, one of its logs or timestamp authorities must
	// have recorded the signature. With Identities, everything that it contains is
	// required: an entry in a log, and one in a certificate transparency log. In any
	// case, there must be a proof of the time when the certificate was used.
	TrustedRoot string `json:"trustedRoot,omitempty"`
}

// Identity is an identity in a certificate. Patterns must match the whole value.
type Identity struct {
	Issuer         string `json:"issuer,omitempty"`
	IssuerPattern  string `json:"issuerPattern,omitempty"`
	Subject        string `json:"subject,omitempty"`
	SubjectPattern string `json:"subjectPattern,omitempty"`
}

// Attestation requests an attestation.
type Attestation struct {
	PredicateType string   `json:"predicateType"`
	Authorities   []string `json:"authorities"`
}

// Answer contains the findings.
type Answer struct {
	// Error is the reason why there are no findings, such as a registry that doesn't
	// respond. All other fields but Problem, Unfit, NeedsCredentials, and RetryAfter are then empty.
	Error string `json:"error,omitempty"`
	// Problem is what kind of problem Error is about. It is empty for an unknown one.
	Problem problem.Reason `json:"problem,omitempty"`
	// Unfit means that Error is about the image itself: it doesn't exist, or doesn't have the
	// form that bpfman accepts. A retry can't help until the reference leads to another image.
	Unfit bool `json:"unfit,omitempty"`
	// NeedsCredentials means that the registry refuses requests without credentials.
	NeedsCredentials bool `json:"needsCredentials,omitempty"`
	// RetryAfter is after how many seconds the registry accepts requests again, if Error says that it is busy, and if it
	// said when.
	RetryAfter int64 `json:"retryAfter,omitempty"`
	// Digest is the digest of the manifest or index that the reference resolves to.
	Digest string `json:"digest,omitempty"`
	// Manifest is the digest of the manifest for this machine. It equals Digest, unless
	// that is the digest of an index.
	Manifest string `json:"manifest,omitempty"`
	// Object describes the object that was written, if it was requested and the caller
	// doesn't have it.
	Object *Object `json:"object,omitempty"`
	// Signatures contains a finding for each authority of the request. A signature of
	// the index or of the manifest is valid.
	Signatures []Finding `json:"signatures,omitempty"`
	// Attestations contains a finding for each authority of each attestation.
	Attestations []Finding `json:"attestations,omitempty"`
}

// Object describes an eBPF object.
type Object struct {
	// Digest is the digest of what is in ObjectFile (sha256:…), and Size its size in
	// bytes: the object of the image without its debug sections. Everything below
	// except Adapted and Function.Unusable is about this object.
	Digest string `json:"digest"`
	Size   int64  `json:"size"`
	// Adapted is what the daemon loads.
	Adapted Adapted `json:"adapted"`
	// Functions are the functions that can be loaded as programs.
	Functions []Function `json:"functions,omitempty"`
	// Maps are the maps that the bytecode declares, without those for global data.
	Maps []Map `json:"maps,omitempty"`
	// Variables are the global variables that an object of the API can set.
	Variables []Variable `json:"variables,omitempty"`
	// Shared are the writable global variables, also static ones, that several functions use.
	Shared []SharedVariable `json:"shared,omitempty"`
	// Helpers are the names of the kernel's helper functions that the bytecode calls, as
	// in bpf(7), such as bpf_map_lookup_elem. A helper without a known name is "unknown"
	// with its number: unknown#999. A kernel function (kfunc) is named
	// kfunc:bpf_cpumask_create.
	Helpers []string `json:"helpers,omitempty"`
	// MapTypes are the types of all maps, with the names that bpftool uses, such as
	// hash. A type without a known name is "unknown#999".
	MapTypes []string `json:"mapTypes,omitempty"`
	// License is the license that the bytecode declares, such as GPL.
	License string `json:"license,omitempty"`
	// Unknown is the reason why Maps, Variables, and MapTypes aren't known. Helpers are known in
	// any case.
	Unknown string `json:"unknown,omitempty"`
}

// Adapted is an object in the form that the daemon loads.
type Adapted struct {
	// Digest is the digest of what was written to AdaptedFile, and Size its size in bytes. If it is the digest of the
	// image's object, nothing was written.
	Digest string `json:"digest"`
	Size   int64  `json:"size"`
	// Kernel identifies the kernel that the object is for, as Kernel does. It is empty if the object fits each kernel.
	Kernel string `json:"kernel,omitempty"`
	// Format is the Format of the process that wrote it.
	Format int `json:"format"`
}

// Fits reports whether this version of bpfman has the daemon load the object on a kernel.
func (a Adapted) Fits(kernel string) bool {
	return a.Format == Format && (a.Kernel == "" || a.Kernel == kernel)
}

// Function is a function that can be loaded as a program.
type Function struct {
	Name    string `json:"name"`
	Section string `json:"section"`
	// Unusable is why the function can't be loaded on this node, and Problem what kind of problem that is.
	Unusable string         `json:"unusable,omitempty"`
	Problem  problem.Reason `json:"problem,omitempty"`
}

// Map is a map that the bytecode declares.
type Map struct {
	Name string `json:"name"`
	// Type is the kernel's number of the type.
	Type      uint32 `json:"type"`
	KeySize   uint32 `json:"keySize"`   // bytes
	ValueSize uint32 `json:"valueSize"` // bytes
	// Pinned means that the loader pins the map by its name (LIBBPF_PIN_BY_NAME), and
	// uses a map that is pinned there already.
	Pinned bool `json:"pinned,omitempty"`
}

// Variable is a global variable of the bytecode.
type Variable struct {
	Name    string `json:"name"`
	Section string `json:"section"`
	Size    uint32 `json:"size"` // bytes
	// Type is nil if the bytecode doesn't describe it.
	Type *Type `json:"type,omitempty"`
}

// SharedVariable is a writable global variable that several functions use.
type SharedVariable struct {
	Name string `json:"name"`
	// Functions are the functions that read or write it, themselves or by calling others.
	Functions []string `json:"functions"`
}

// Type is the type of a variable.
type Type struct {
	// Name is the name in the source, such as __u16, char[16], or struct config.
	Name string `json:"name"`
	// Kind is what the variable, or each element of an array, is. It is empty if that is none of the kinds below, such as
	// a struct.
	Kind Kind `json:"kind,omitempty"`
	// Width is the size of a number in bytes: 1, 2, 4, or 8.
	Width uint32 `json:"width,omitempty"`
	// Lengths are the lengths of an array, the outermost first. Together with Width, they result in the variable's size.
	Lengths []uint32 `json:"lengths,omitempty"`
}

// Kind is a kind of values.
type Kind string

// The kinds of values.
const (
	Unsigned Kind = "unsigned"
	Signed   Kind = "signed"
	Bool     Kind = "bool"
)

// Finding is the result for one authority.
type Finding struct {
	// Authority is the name of the authority in the request.
	Authority string `json:"authority"`
	// PredicateType is the predicate type, if the finding is about an attestation.
	PredicateType string `json:"predicateType,omitempty"`
	// Signer is who signed: the certificate's subject and issuer, or the fingerprint of
	// the public key (SHA256:…). It is empty if there is no valid signature.
	Signer string `json:"signer,omitempty"`
	// Reason is why there is no valid signature: none exists, or what is wrong with
	// those that exist. It is empty if Signer is set.
	Reason string `json:"reason,omitempty"`
	// Problem is what kind of problem Reason is about. It is empty if the image lacks a valid signature.
	Problem problem.Reason `json:"problem,omitempty"`
}
