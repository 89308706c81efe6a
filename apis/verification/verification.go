// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package verification is what the agent asks bpfman-verify, and what that
// answers: one Request on its standard input, one Answer on its standard output,
// both JSON. bpfman-verify is a process for each question, so that what the
// verification of signatures takes of memory is gone with it.
//
// The answer has findings, not a verdict: deciding is for package policy.
//
// The process ends with status 0 wherever it has answered, also with an
// Answer.Error; with another status it says why on its standard error. It
// answers within its flag --timeout, a duration of 30s unless given, and reads
// SSL_CERT_FILE and the proxies' variables of its environment as the agent does.
package verification

// Command is the name of the executable, in the directory of the agent's own.
const Command = "bpfman-verify"

// MaxRequest and MaxAnswer are the most that a Request and an Answer may have,
// in bytes.
const (
	MaxRequest = 16 << 20
	MaxAnswer  = 1 << 20
)

// Request asks who has signed an image, and what its bytecode uses.
type Request struct {
	// Image is the image's repository and the digest that its reference was
	// resolved to: quay.io/acme/xdp-pass@sha256:… .
	Image string `json:"image"`
	// Manifest is the digest of the manifest that is loaded, where Image is an
	// index; the caller has found it in that. A signature of either counts.
	Manifest string `json:"manifest,omitempty"`
	// Credentials are for the registry.
	Credentials *Credentials `json:"credentials,omitempty"`
	// Authorities are whose signatures are looked for.
	Authorities []Authority `json:"authorities,omitempty"`
	// Attestations are the predicate types of the attestations that are looked
	// for, each with the names of the authorities whose signature counts.
	Attestations []Attestation `json:"attestations,omitempty"`
	// Bytecode asks which helper functions and types of maps the bytecode uses.
	Bytecode bool `json:"bytecode,omitempty"`
}

// Credentials are a registry's user and password.
type Credentials struct {
	Username string `json:"username"`
	Password string `json:"password"`
}

// Authority is an authority with its material.
type Authority struct {
	// Name is that of the policy and of the authority in it: policy/authority.
	Name string `json:"name"`
	// Keys are public keys in PEM, of which any counts. They are absent where
	// Identities are present.
	Keys []string `json:"keys,omitempty"`
	// Identities are what certificates may say.
	Identities []Identity `json:"identities,omitempty"`
	// TrustedRoot is Sigstore's JSON of the certificate authorities, logs and
	// timestamp authorities. Beside keys it demands that a log or a timestamp
	// authority of it has seen the signature. Beside identities all that it has
	// is demanded: an entry of a log, and of a certificate transparency log; and
	// in any case a proof of when the certificate was used.
	TrustedRoot string `json:"trustedRoot,omitempty"`
}

// Identity is an identity in a certificate; patterns are anchored.
type Identity struct {
	Issuer         string `json:"issuer,omitempty"`
	IssuerPattern  string `json:"issuerPattern,omitempty"`
	Subject        string `json:"subject,omitempty"`
	SubjectPattern string `json:"subjectPattern,omitempty"`
}

// Attestation asks for an attestation.
type Attestation struct {
	PredicateType string   `json:"predicateType"`
	Authorities   []string `json:"authorities"`
}

// Answer is what was found out.
type Answer struct {
	// Error tells why nothing could be found out, such as that the registry
	// doesn't answer. All else is empty then, and asking again may help.
	Error string `json:"error,omitempty"`
	// Signatures has a finding for each authority of the request.
	Signatures []Finding `json:"signatures,omitempty"`
	// Attestations has a finding for each authority of each attestation.
	Attestations []Finding `json:"attestations,omitempty"`
	// Helpers are the names of the kernel's helper functions that the bytecode
	// calls, as in bpf(7): bpf_map_lookup_elem. A helper without a known name is
	// "unknown" and its number: unknown#999. A kernel function that is no helper
	// is named kfunc:bpf_cpumask_create.
	Helpers []string `json:"helpers,omitempty"`
	// MapTypes are the types of the maps that the bytecode declares, as bpftool
	// names them: hash. A type without a known name is likewise "unknown#999".
	MapTypes []string `json:"mapTypes,omitempty"`
	// BytecodeError tells why Helpers and MapTypes couldn't be told.
	BytecodeError string `json:"bytecodeError,omitempty"`
}

// Finding is what was found of one authority.
type Finding struct {
	// Authority is the name in the request.
	Authority string `json:"authority"`
	// PredicateType is that of an attestation.
	PredicateType string `json:"predicateType,omitempty"`
	// Signer is who signed: the certificate's subject and issuer, or the
	// fingerprint of the public key (SHA256:…). Empty where nobody has.
	Signer string `json:"signer,omitempty"`
	// Reason tells why no signature counts: none is there, or what is wrong with
	// those that are. It is empty where Signer isn't.
	Reason string `json:"reason,omitempty"`
}
