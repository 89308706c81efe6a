// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BytecodePolicySpec says which bytecode may be loaded, and for whom.
// +kubebuilder:validation:XValidation:rule="!has(self.rules) || self.rules.all(r, !has(r.signedBy) || r.signedBy.all(n, has(self.authorities) && self.authorities.exists(a, a.name == n)))",message="signedBy of a rule names an authority that isn't among the authorities"
// +kubebuilder:validation:XValidation:rule="!has(self.rules) || self.rules.all(r, !has(r.attestations) || r.attestations.all(t, t.signedBy.all(n, has(self.authorities) && self.authorities.exists(a, a.name == n))))",message="signedBy of an attestation names an authority that isn't among the authorities"
type BytecodePolicySpec struct {
	// mode says what happens to bytecode that violates the policy: enforce refuses
	// to load it, warn loads it and reports what enforce would refuse.
	// +optional
	// +default="enforce"
	Mode PolicyMode `json:"mode,omitempty"`

	// onViolation says what happens to a program that runs already and that the
	// policy doesn't allow, or no longer allows: keep reports it and leaves it
	// loaded, unload unloads it. It has no effect in mode warn.
	// +optional
	// +default="keep"
	OnViolation PolicyOnViolation `json:"onViolation,omitempty"`

	// match selects the objects and nodes that the policy applies to. An empty
	// match selects all.
	// +optional
	Match BytecodePolicyMatch `json:"match,omitzero"`

	// rules say what an image must satisfy. An image has to satisfy each rule that
	// one of its image patterns matches.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Rules []BytecodeRule `json:"rules,omitempty"`

	// unmatchedImages says what happens to images that no rule matches: allow
	// leaves them to other policies, deny refuses them.
	// +optional
	// +default="allow"
	UnmatchedImages PolicyUnmatchedImages `json:"unmatchedImages,omitempty"`

	// authorities are the signers that rules name.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Authorities []BytecodeAuthority `json:"authorities,omitempty"`
}

// PolicyMode says what happens to bytecode that violates a policy.
// +kubebuilder:validation:Enum=enforce;warn
type PolicyMode string

// The modes of a policy.
const (
	PolicyEnforce PolicyMode = "enforce"
	PolicyWarn    PolicyMode = "warn"
)

// PolicyOnViolation says what happens to a running program that violates a policy.
// +kubebuilder:validation:Enum=keep;unload
type PolicyOnViolation string

// What happens to a running program that violates a policy.
const (
	OnViolationKeep   PolicyOnViolation = "keep"
	OnViolationUnload PolicyOnViolation = "unload"
)

// PolicyUnmatchedImages says what happens to images that no rule matches.
// +kubebuilder:validation:Enum=allow;deny
type PolicyUnmatchedImages string

// What happens to images that no rule matches.
const (
	UnmatchedAllow PolicyUnmatchedImages = "allow"
	UnmatchedDeny  PolicyUnmatchedImages = "deny"
)

// BytecodePolicyMatch selects objects and nodes. What is absent selects all; an
// object is selected by all that is present.
type BytecodePolicyMatch struct {
	// kinds lists the kinds of objects, such as XdpProgram or BpfNsApplication.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=14
	// +kubebuilder:validation:items:Enum=BpfApplication;BpfNsApplication;FentryProgram;FexitProgram;KprobeProgram;TcNsProgram;TcProgram;TcxNsProgram;TcxProgram;TracepointProgram;UprobeNsProgram;UprobeProgram;XdpNsProgram;XdpProgram
	Kinds []string `json:"kinds,omitempty"`

	// namespaces lists namespaces by name; "*" stands for any characters. Where it
	// is present, cluster-scoped objects aren't selected.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9*][-a-z0-9*]*$`
	Namespaces []string `json:"namespaces,omitempty"`

	// nodeSelector selects nodes by their labels.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && size(e.values) > 0 : e.operator in ['Exists', 'DoesNotExist'] && !(has(e.values) && size(e.values) > 0))",message="an operator is In or NotIn, with values, or Exists or DoesNotExist, without"
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
}

// BytecodeRule says what images have to satisfy.
// +kubebuilder:validation:XValidation:rule="!has(self.deny) || !self.deny || !(has(self.digestOnly) && self.digestOnly || has(self.signedBy) || has(self.attestations) || has(self.limits))",message="a rule with deny has no other requirement"
type BytecodeRule struct {
	// name of the rule, which messages mention.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]+(-+[a-z0-9]+)*$`
	Name string `json:"name"`

	// images are patterns of image references, of which one has to match. They are
	// compared with the full name of the image's repository, such as
	// quay.io/acme/xdp-pass or docker.io/library/busybox, and a pattern that has a
	// tag or a digest with that of the reference as well. A tag beside a digest
	// counts for nothing. "*" stands for any characters but "/", "**" for any
	// characters: quay.io/acme/*, registry.example.com:5000/**, *.example.com/**. A
	// file on the node is named file: and its path: file:/opt/bytecode/*. The
	// pattern ** matches all images and files.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:items:XValidation:rule="self != '*'",message="* stands for any characters but /, and matches no image: write ** for all images and files"
	// +kubebuilder:validation:items:XValidation:rule="!self.startsWith('file:/') || self.matches('^[^ \\t\\r\\n\\\\\\\\]+$') && !self.contains('//') && !self.matches('/[.][.]?(/|$)')",message="a file's path is written without //, /./ and /../"
	// +kubebuilder:validation:items:XValidation:rule="self in ['*', '**'] || self.startsWith('file:/') || self.matches('^([*]|localhost|([*][.])?[a-z0-9-]+([.][a-z0-9-]+)+|[a-z0-9-]+:[0-9*]+)(:([0-9]+|[*]))?/')",message="a pattern begins with the registry's host, as in docker.io/library/busybox: a name, *. and a domain, or * for any host; or with file:/"
	// +kubebuilder:validation:items:XValidation:rule="self in ['*', '**'] || self.startsWith('file:/') || !self.contains('/') || self.matches('^[^/]*/[a-z0-9*][-a-z0-9._/*]*(:[-A-Za-z0-9_.*]+|@[-+.:a-zA-Z0-9*]+)?$')",message="behind the host are the repository's path, in lower case, and a tag or a digest, if any: a tag beside a digest counts for nothing"
	// +kubebuilder:validation:items:XValidation:rule="!self.matches('^(index.docker.io/|[^/]*:443/|docker.io/[^/*]*(/?$|[:@])|docker.io/[*]$|docker.io/[*][:@])')",message="no image has such a name: it is docker.io/library/busybox for busybox, docker.io for index.docker.io, and a host's name alone for its port 443"
	Images []string `json:"images"`

	// deny refuses these images.
	// +optional
	Deny bool `json:"deny,omitempty"`

	// digestOnly requires that the object names the image by its digest:
	// quay.io/acme/xdp-pass@sha256:… .
	// +optional
	DigestOnly bool `json:"digestOnly,omitempty"`

	// signedBy requires that one of these authorities has signed the image.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	SignedBy []string `json:"signedBy,omitempty"`

	// attestations requires that each of these attestations is there, signed.
	// +optional
	// +listType=map
	// +listMapKey=predicateType
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Attestations []BytecodeAttestation `json:"attestations,omitempty"`

	// limits restricts what programs of these images may be, and where they may be
	// attached.
	// +optional
	Limits *BytecodeLimits `json:"limits,omitempty"`
}

// BytecodeAttestation is an attestation about an image: an in-toto statement of
// which the image is the subject.
type BytecodeAttestation struct {
	// predicateType of the statement, such as https://slsa.dev/provenance/v1.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	PredicateType string `json:"predicateType"`

	// signedBy names the authorities of which one has to have signed the statement.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	SignedBy []string `json:"signedBy"`
}

// BytecodeLimits restricts programs and hooks. What is absent isn't restricted.
// In patterns, "*" stands for any characters.
// +kubebuilder:validation:MinProperties=1
type BytecodeLimits struct {
	// programTypes lists the allowed types of programs. Kprobe and Uprobe stand for
	// return probes as well: the bytecode decides which of the two a program is.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:Enum=XDP;TC;TCX;Fentry;Fexit;Kprobe;Uprobe;Tracepoint
	ProgramTypes []EBPFProgType `json:"programTypes,omitempty"`

	// interfaces are patterns of the network interfaces that XDP, TC and TCX
	// programs may be attached to, on the host and in pods.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Pattern=`^[^\s\\]+$`
	// +kubebuilder:validation:items:MaxLength=64
	Interfaces []string `json:"interfaces,omitempty"`

	// tracepoints are patterns of the tracepoints that programs may be attached to,
	// as category/event: syscalls/*.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Pattern=`^[^\s\\]+$`
	// +kubebuilder:validation:items:MaxLength=256
	Tracepoints []string `json:"tracepoints,omitempty"`

	// functions are patterns of the kernel functions that kprobes, fentry and fexit
	// programs may be attached to. A kprobe with an offset isn't allowed where this
	// is present: an offset can lead into another function.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Pattern=`^[^\s\\]+$`
	// +kubebuilder:validation:items:MaxLength=256
	Functions []string `json:"functions,omitempty"`

	// targets are patterns of the libraries and executables that uprobes may be
	// attached to, as the object names them. A path with "." or ".." in it isn't
	// allowed where this is present.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Pattern=`^[^\s\\]+$`
	// +kubebuilder:validation:items:MaxLength=512
	Targets []string `json:"targets,omitempty"`

	// priority is the range of priorities that XDP, TC and TCX programs may have.
	// +optional
	Priority *PriorityRange `json:"priority,omitempty"`

	// helpers restricts the kernel's helper functions that the bytecode may call,
	// as its instructions show: bpf_probe_write_user.
	// +optional
	Helpers *NameLimits `json:"helpers,omitempty"`

	// mapTypes restricts the types of the maps that the bytecode declares, named
	// as bpftool does: hash, ringbuf, prog_array.
	// +optional
	MapTypes *NameLimits `json:"mapTypes,omitempty"`
}

// PriorityRange is a range of priorities, both ends included.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.min) || !has(self.max) || self.min <= self.max",message="min is greater than max"
type PriorityRange struct {
	// min is the lowest priority, which runs first; absent means 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Min *int32 `json:"min,omitempty"`

	// max is the highest priority; absent means 1000.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Max *int32 `json:"max,omitempty"`
}

// NameLimits restricts names by patterns. A name that is denied isn't allowed,
// whatever allow says.
// +kubebuilder:validation:MinProperties=1
type NameLimits struct {
	// allow lists the only names that are allowed.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	Allow []string `json:"allow,omitempty"`

	// deny lists names that aren't allowed.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	Deny []string `json:"deny,omitempty"`
}

// BytecodeAuthority is somebody who signs images: the holder of a key, or
// identities to which a certificate authority issues short-lived certificates.
// +kubebuilder:validation:XValidation:rule="has(self.key) != has(self.keyless)",message="an authority has either key or keyless"
type BytecodeAuthority struct {
	// name of the authority, by which rules refer to it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]+(-+[a-z0-9]+)*$`
	Name string `json:"name"`

	// key is a public key.
	// +optional
	Key *AuthorityKey `json:"key,omitempty"`

	// keyless are identities in certificates, as Fulcio issues them.
	// +optional
	Keyless *AuthorityKeyless `json:"keyless,omitempty"`
}

// AuthorityKey is a public key, given here or in a Secret.
// +kubebuilder:validation:XValidation:rule="has(self.pem) != has(self.secret)",message="a key has either pem or secret"
type AuthorityKey struct {
	// pem is the public key in PEM (PKIX), as cosign writes it to cosign.pub.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=8192
	// +kubebuilder:validation:XValidation:rule="self.contains('-----BEGIN PUBLIC KEY-----') && !self.contains('PRIVATE KEY-----')",message="pem is a public key in PEM, which begins with -----BEGIN PUBLIC KEY-----, and no private one"
	PEM string `json:"pem,omitempty"`

	// secret names the Secret that holds the public key, in the namespace that
	// bpfman runs in. Without an item's name each item whose name ends in .pub is a
	// public key; a signature by any of them is valid, so keys can be rotated.
	// +optional
	Secret *AuthorityReference `json:"secret,omitempty"`

	// trustedRoot names the ConfigMap with a trusted root. Where it is present, the signature has to
	// be in the transparency log of that root or have a timestamp of one of its
	// timestamp authorities.
	// +optional
	TrustedRoot *AuthorityReference `json:"trustedRoot,omitempty"`
}

// AuthorityKeyless are identities in certificates.
type AuthorityKeyless struct {
	// identities are accepted; one of them has to be the certificate's.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Identities []AuthorityIdentity `json:"identities"`

	// trustedRoot names the ConfigMap with the certificate authorities, logs and
	// timestamp authorities that are trusted, in Sigstore's format
	// (application/vnd.dev.sigstore.trustedroot+json), in the namespace that
	// bpfman runs in.
	// +required
	TrustedRoot AuthorityReference `json:"trustedRoot"`
}

// AuthorityReference names an item of a Secret or a ConfigMap in the namespace
// that bpfman runs in.
type AuthorityReference struct {
	// name of the Secret or ConfigMap.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// key is the item's name; absent means each item whose name ends in .pub of a
	// Secret with public keys, and trusted_root.json of a ConfigMap with a trusted
	// root.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`
}

// AuthorityIdentity is an identity in a certificate. Patterns are regular
// expressions (Go's syntax) that have to match the whole of the value.
// +kubebuilder:validation:XValidation:rule="has(self.issuer) != has(self.issuerPattern)",message="an identity has either issuer or issuerPattern"
// +kubebuilder:validation:XValidation:rule="has(self.subject) != has(self.subjectPattern)",message="an identity has either subject or subjectPattern"
type AuthorityIdentity struct {
	// issuer is the URL of the identity provider.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Issuer string `json:"issuer,omitempty"`

	// issuerPattern matches the URL of the identity provider.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="type(''.matches(self)) == bool",message="it is no regular expression in Go's syntax"
	IssuerPattern string `json:"issuerPattern,omitempty"`

	// subject is the subject alternative name: an email address, or the URI of a
	// workflow.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Subject string `json:"subject,omitempty"`

	// subjectPattern matches the subject alternative name.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="type(''.matches(self)) == bool",message="it is no regular expression in Go's syntax"
	SubjectPattern string `json:"subjectPattern,omitempty"`
}

// BytecodePolicyStatus is what came of a policy.
type BytecodePolicyStatus struct {
	// observedGeneration is the metadata.generation that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// allowed is the number of programs, counted on each node, that satisfy the
	// policy.
	// +optional
	Allowed int32 `json:"allowed"`

	// denied is the number of programs, counted on each node, that violate the
	// policy: those that weren't loaded, and those that are still loaded.
	// +optional
	Denied int32 `json:"denied"`

	// warned is the number of programs, counted on each node, that are loaded and
	// that mode enforce would refuse.
	// +optional
	Warned int32 `json:"warned"`

	// authorities tell which public keys and trusted roots the policy refers to.
	// +optional
	// +listType=map
	// +listMapKey=name
	Authorities []BytecodeAuthorityStatus `json:"authorities,omitempty"`

	// conditions holds one condition, of type Ready. It is False where the policy is
	// wrong, such as where a key can't be read: then all that the policy matches is
	// denied.
	// +optional
	// +patchMergeKey=type
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchMergeKey:"type" patchStrategy:"merge"`
}

// BytecodeAuthorityStatus tells which material an authority refers to.
type BytecodeAuthorityStatus struct {
	// name of the authority.
	// +required
	Name string `json:"name"`

	// digest is a hash of the authority's public keys and trusted root. It changes
	// when they are rotated, upon which nodes look at programs again.
	// +optional
	Digest string `json:"digest,omitempty"`

	// error tells why the material can't be used.
	// +optional
	Error string `json:"error,omitempty"`
}

// PolicyReady is the type of a BytecodePolicy's condition.
const PolicyReady = "Ready"

// The reasons of a BytecodePolicy's condition.
const (
	PolicyReasonReady   = "Ready"
	PolicyReasonInvalid = "Invalid"
)

// BytecodePolicy says which bytecode may be loaded, for which objects and on which
// nodes. Bytecode that several policies match has to satisfy all of them; bytecode
// that none matches may be loaded.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,path=bytecodepolicies,singular=bytecodepolicy,shortName=bcpol,categories=bpfman
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Allowed",type=integer,JSONPath=`.status.allowed`
// +kubebuilder:printcolumn:name="Denied",type=integer,JSONPath=`.status.denied`
// +kubebuilder:printcolumn:name="Warned",type=integer,JSONPath=`.status.warned`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
type BytecodePolicy struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the policy.
	// +required
	Spec BytecodePolicySpec `json:"spec"`

	// status is what came of it.
	// +optional
	Status BytecodePolicyStatus `json:"status,omitzero"`
}

// BytecodePolicyList is a list of BytecodePolicies.
//
// +kubebuilder:object:root=true
type BytecodePolicyList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []BytecodePolicy `json:"items"`
}
