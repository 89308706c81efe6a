// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package verification defines the protocol between the agent and bpfman-verify: one
// Request on standard input and one Answer on standard output, both in JSON.
// bpfman-verify is a process for each request, so the memory that the verification of
// signatures takes is free again afterwards.
//
// The answer contains findings, not a verdict. Package policy decides.
//
// The process exits with status 0 if it answered, even with an Answer.Error. With any
// other status, it prints the reason to standard error. It answers within its flag
// --timeout, which is a duration with the default 30s. Like the agent, it reads
// SSL_CERT_FILE and the proxy variables from its environment.
package verification

// Command is the name of the executable. It is in the same directory as the agent's
// executable.
const Command = "bpfman-verify"

// MaxRequest and MaxAnswer are the maximum sizes of a Request and an Answer, in bytes.
const (
	MaxRequest = 16 << 20
	MaxAnswer  = 1 << 20
)

// Request asks who signed an image, and what its bytecode uses.
type Request struct {
	// Image is the image's repository with the digest that its reference was resolved
	// to, such as quay.io/acme/xdp-pass@sha256:… .
	Image string `json:"image"`
	// Manifest is the digest of the manifest that is loaded, if Image is an index. The
	// caller found it in the index. A signature of either is valid.
	Manifest string `json:"manifest,omitempty"`
	// Credentials are the credentials for the registry.
	Credentials *Credentials `json:"credentials,omitempty"`
	// Authorities are the authorities whose signatures to look for.
	Authorities []Authority `json:"authorities,omitempty"`
	// Attestations are the predicate types of the attestations to look for, each with
	// the names of the authorities whose signatures are valid.
	Attestations []Attestation `json:"attestations,omitempty"`
	// Bytecode requests the helper functions and map types that the bytecode uses.
	Bytecode bool `json:"bytecode,omitempty"`
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
	// respond. All other fields are then empty, and a retry may help.
	Error string `json:"error,omitempty"`
	// Signatures contains a finding for each authority of the request.
	Signatures []Finding `json:"signatures,omitempty"`
	// Attestations contains a finding for each authority of each attestation.
	Attestations []Finding `json:"attestations,omitempty"`
	// Helpers are the names of the kernel's helper functions that the bytecode calls, as
	// in bpf(7), such as bpf_map_lookup_elem. A helper without a known name is "unknown"
	// with its number: unknown#999. A kernel function (kfunc) is named
	// kfunc:bpf_cpumask_create.
	Helpers []string `json:"helpers,omitempty"`
	// MapTypes are the types of the maps that the bytecode declares, with the names that
	// bpftool uses, such as hash. A type without a known name is "unknown#999".
	MapTypes []string `json:"mapTypes,omitempty"`
	// BytecodeError is the reason why Helpers and MapTypes aren't known.
	BytecodeError string `json:"bytecodeError,omitempty"`
}

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
}
