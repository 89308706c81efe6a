// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BytecodePolicySpec restricts which bytecode is loaded, and for which objects.
// +kubebuilder:validation:XValidation:rule="!has(self.rules) || self.rules.all(r, !has(r.signedBy) || r.signedBy.all(n, has(self.authorities) && self.authorities.exists(a, a.name == n)))",message="signedBy of a rule must name one of the authorities"
// +kubebuilder:validation:XValidation:rule="!has(self.rules) || self.rules.all(r, !has(r.attestations) || r.attestations.all(t, t.signedBy.all(n, has(self.authorities) && self.authorities.exists(a, a.name == n))))",message="signedBy of an attestation must name one of the authorities"
type BytecodePolicySpec struct {
	// mode says what happens to bytecode that violates the policy. With `enforce`,
	// it isn't loaded. With `warn`, it is loaded, and the violation is reported.
	// +optional
	// +default="enforce"
	Mode PolicyMode `json:"mode,omitempty"`

	// onViolation says what happens to a loaded program that the policy doesn't
	// allow, or no longer allows. With `keep`, it stays loaded, and the violation
	// is reported. With `unload`, it is unloaded. In mode `warn`, this field has
	// no effect.
	// +optional
	// +default="keep"
	OnViolation PolicyOnViolation `json:"onViolation,omitempty"`

	// match selects the objects and nodes that the policy applies to. An empty
	// match selects all. For example: `{namespaces: [team-*]}`.
	// +optional
	Match BytecodePolicyMatch `json:"match,omitzero"`

	// rules say what images must satisfy. An image must satisfy every rule that
	// has a matching pattern.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Rules []BytecodeRule `json:"rules,omitempty"`

	// unmatchedImages says what happens to images that no rule matches. With
	// `allow`, this policy allows them. With `deny`, it denies them.
	// +optional
	// +default="allow"
	UnmatchedImages PolicyUnmatchedImages `json:"unmatchedImages,omitempty"`

	// authorities are the signers that rules refer to.
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

// BytecodePolicyMatch selects objects and nodes. An object must match every
// field that is present. A field that is absent matches everything.
type BytecodePolicyMatch struct {
	// kinds lists kinds of objects. For example: `[XdpProgram, BpfNsApplication]`.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Enum=BpfApplication;BpfNsApplication;ClusterBpfApplication;FentryProgram;FexitProgram;KprobeProgram;LsmProgram;TcNsProgram;TcProgram;TcxNsProgram;TcxProgram;TracepointProgram;UprobeNsProgram;UprobeProgram;XdpNsProgram;XdpProgram
	Kinds []string `json:"kinds,omitempty"`

	// namespaces lists namespaces by name. An asterisk matches any characters. If
	// this field is present, the policy doesn't apply to cluster-scoped objects.
	// For example: `[default, team-*]`.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9*][-a-z0-9*]*$`
	Namespaces []string `json:"namespaces,omitempty"`

	// nodeSelector selects nodes by their labels. For example: `{matchLabels:
	// {zone: public}}`.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && size(e.values) > 0 : e.operator in ['Exists', 'DoesNotExist'] && !(has(e.values) && size(e.values) > 0))",message="the operator must be In or NotIn with values, or Exists or DoesNotExist without values"
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
}

// BytecodeRule says what images must satisfy.
// +kubebuilder:validation:XValidation:rule="!has(self.deny) || !self.deny || !(has(self.digestOnly) && self.digestOnly || has(self.signedBy) || has(self.attestations) || has(self.limits))",message="a rule with deny must not have other requirements"
type BytecodeRule struct {
	// name is the name of the rule. Messages contain it. For example:
	// `acme-signed`.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]+(-+[a-z0-9]+)*$`
	Name string `json:"name"`

	// images are patterns for references of images. One of them must match. A
	// pattern is compared with the full name of the image's repository, such as
	// quay.io/acme/xdp-pass or docker.io/library/busybox. A pattern with a tag or
	// a digest is also compared with that of the reference. If a reference has a
	// digest, its tag is ignored. `*` matches any characters except /, and `**`
	// matches any characters. A file on the node has the name `file:` and its
	// path. For example: `[quay.io/acme/*, '*.example.com/**',
	// file:/opt/bytecode/*]`. The pattern `**` matches all images and files.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:items:XValidation:rule="self != '*'",message="* matches any characters except /, and so matches no image: write ** for all images and files"
	// +kubebuilder:validation:items:XValidation:rule="!self.startsWith('file:/') || self.matches('^[^ \\t\\r\\n\\\\\\\\]+$') && !self.contains('//') && !self.matches('/[.][.]?(/|$)')",message="the path of a file must not contain //, /./, or /../"
	// +kubebuilder:validation:items:XValidation:rule="self in ['*', '**'] || self.startsWith('file:/') || self.matches('^([*]|localhost|([*][.])?[a-z0-9-]+([.][a-z0-9-]+)+|[a-z0-9-]+:[0-9*]+)(:([0-9]+|[*]))?/')",message="a pattern must begin with file:/ or with the registry's host, as in docker.io/library/busybox. The host is a name, *. and a domain, or * for any host"
	// +kubebuilder:validation:items:XValidation:rule="self in ['*', '**'] || self.startsWith('file:/') || !self.contains('/') || self.matches('^[^/]*/[a-z0-9*][-a-z0-9._/*]*(:[-A-Za-z0-9_.*]+|@[-+.:a-zA-Z0-9*]+)?$')",message="the host must be followed by the path of the repository in lower case, and optionally by either a tag or a digest"
	// +kubebuilder:validation:items:XValidation:rule="!self.matches('^(index.docker.io/|[^/]*:443/|docker.io/[^/*]*(/?$|[:@])|docker.io/[*]$|docker.io/[*][:@])')",message="no image has such a name: write docker.io/library/busybox for busybox, docker.io for index.docker.io, and a host without port 443"
	Images []string `json:"images"`

	// deny refuses these images. For example: `true`.
	// +optional
	Deny bool `json:"deny,omitempty"`

	// digestOnly requires that the object references the image by its digest, as
	// in quay.io/acme/xdp-pass@sha256:…. For example: `true`.
	// +optional
	DigestOnly bool `json:"digestOnly,omitempty"`

	// signedBy requires that one of these authorities has signed the image. For
	// example: `[acme]`.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	SignedBy []string `json:"signedBy,omitempty"`

	// attestations requires that each of these attestations exists and is signed.
	// For example: `[{predicateType: https://slsa.dev/provenance/v1, signedBy:
	// [acme]}]`.
	// +optional
	// +listType=map
	// +listMapKey=predicateType
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Attestations []BytecodeAttestation `json:"attestations,omitempty"`

	// limits restricts what programs in these images can be, and where they can be
	// attached. For example: `{programTypes: [TCX], interfaces: [eth*]}`.
	// +optional
	Limits *BytecodeLimits `json:"limits,omitempty"`
}

// BytecodeAttestation is an attestation about an image: an in-toto statement
// whose subject is the image.
type BytecodeAttestation struct {
	// predicateType is the type of the statement's predicate. For example:
	// `https://slsa.dev/provenance/v1`.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	PredicateType string `json:"predicateType"`

	// signedBy lists authorities. One of them must have signed the statement. For
	// example: `[acme]`.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	SignedBy []string `json:"signedBy"`
}

// BytecodeLimits restricts programs and hooks. A field that is absent restricts
// nothing. In patterns, an asterisk matches any characters.
// +kubebuilder:validation:MinProperties=1
type BytecodeLimits struct {
	// programTypes lists the allowed types of programs. Kprobe and Uprobe include
	// return probes, because the bytecode decides which of the two a program is.
	// For example: `[XDP, TCX]`.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Enum=Fentry;Fexit;Kprobe;LSM;TC;TCX;Tracepoint;Uprobe;XDP
	ProgramTypes []EBPFProgType `json:"programTypes,omitempty"`

	// interfaces are patterns for the network interfaces that XDP, TC, and TCX
	// programs can be attached to, on the host and in pods. For example: `[eth*]`.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Pattern=`^[^\s\\]+$`
	// +kubebuilder:validation:items:MaxLength=64
	Interfaces []string `json:"interfaces,omitempty"`

	// tracepoints are patterns for the tracepoints that programs can be attached
	// to, as category/event. For example: `[syscalls/*]`.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Pattern=`^[^\s\\]+$`
	// +kubebuilder:validation:items:MaxLength=256
	Tracepoints []string `json:"tracepoints,omitempty"`

	// functions are patterns for the kernel functions that kprobes, fentry, and
	// fexit programs can be attached to. If it is present, kprobes can't have an
	// offset, because an offset can lead into another function. `*` doesn't match
	// the colon in the name of a module's function, such as
	// `nf_tables:nft_do_chain`. For example: `[tcp_*]`.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Pattern=`^[^\s\\]+$`
	// +kubebuilder:validation:items:MaxLength=256
	Functions []string `json:"functions,omitempty"`

	// targets are patterns for the libraries and executables that uprobes can be
	// attached to, as the object names them. If it is present, paths can't contain
	// `.` or `..` as an element. For example: `[libssl, /usr/bin/*]`.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Pattern=`^[^\s\\]+$`
	// +kubebuilder:validation:items:MaxLength=512
	Targets []string `json:"targets,omitempty"`

	// priority is the range of priorities that XDP, TC, and TCX programs can have.
	// For example: `{min: 100, max: 900}`.
	// +optional
	Priority *PriorityRange `json:"priority,omitempty"`

	// helpers restricts the kernel's helper functions that the instructions of the
	// bytecode call. For example: `{deny: [bpf_probe_write_user]}`.
	// +optional
	Helpers *NameLimits `json:"helpers,omitempty"`

	// mapTypes restricts the types of the maps that the bytecode declares, with
	// the names that bpftool uses. For example: `{allow: [hash, array, ringbuf]}`.
	// +optional
	MapTypes *NameLimits `json:"mapTypes,omitempty"`
}

// PriorityRange is a range of priorities, including both ends.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.min) || !has(self.max) || self.min <= self.max",message="min must not be greater than max"
type PriorityRange struct {
	// min is the lowest priority, which runs first. The default is 0. For example:
	// `100`.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Min *int32 `json:"min,omitempty"`

	// max is the highest priority. The default is 1000. For example: `900`.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Max *int32 `json:"max,omitempty"`
}

// NameLimits restricts names by patterns. A name that deny matches isn't
// allowed, even if allow matches it.
// +kubebuilder:validation:MinProperties=1
type NameLimits struct {
	// allow lists the only names that are allowed. For example: `[hash, array]`.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	Allow []string `json:"allow,omitempty"`

	// deny lists names that aren't allowed. For example: `[prog_array]`.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	Deny []string `json:"deny,omitempty"`
}

// BytecodeAuthority is a signer of images: the holder of a key, or identities
// to which a certificate authority issues short-lived certificates.
// +kubebuilder:validation:XValidation:rule="has(self.key) != has(self.keyless)",message="an authority must have either key or keyless"
type BytecodeAuthority struct {
	// name is the name of the authority. Rules refer to it. For example: `acme`.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]+(-+[a-z0-9]+)*$`
	Name string `json:"name"`

	// key is a public key. For example: `{secret: {name: acme-keys}}`.
	// +optional
	Key *AuthorityKey `json:"key,omitempty"`

	// keyless contains identities in certificates that an authority such as Fulcio
	// issues.
	// +optional
	Keyless *AuthorityKeyless `json:"keyless,omitempty"`
}

// AuthorityKey is a public key, either in the object or in a Secret.
// +kubebuilder:validation:XValidation:rule="has(self.pem) != has(self.secret)",message="a key must have either pem or secret"
type AuthorityKey struct {
	// pem is the public key in PEM format (PKIX), as cosign writes it to
	// cosign.pub. For example: `-----BEGIN PUBLIC KEY-----…`.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=8192
	// +kubebuilder:validation:XValidation:rule="self.contains('-----BEGIN PUBLIC KEY-----') && !self.contains('PRIVATE KEY-----')",message="pem must be a public key in PEM format, which begins with -----BEGIN PUBLIC KEY-----, and not a private key"
	PEM string `json:"pem,omitempty"`

	// secret names the Secret with the public key, in the namespace that bpfman
	// runs in. If the reference doesn't name an item, every item whose name ends
	// in .pub is a public key. A signature by any of them is valid, so you can
	// rotate keys. For example: `{name: acme-keys}`.
	// +optional
	Secret *AuthorityReference `json:"secret,omitempty"`

	// trustedRoot names the ConfigMap with a trusted root. If it is present, the
	// signature must be in the root's transparency log, or have a timestamp of one
	// of the root's timestamp authorities. For example: `{name: sigstore-root}`.
	// +optional
	TrustedRoot *AuthorityReference `json:"trustedRoot,omitempty"`
}

// AuthorityKeyless contains identities in certificates.
type AuthorityKeyless struct {
	// identities are the accepted identities. The certificate must have one of
	// them.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Identities []AuthorityIdentity `json:"identities"`

	// trustedRoot names the ConfigMap with the trusted certificate authorities,
	// logs, and timestamp authorities. The format is Sigstore's
	// (application/vnd.dev.sigstore.trustedroot+json). The ConfigMap is in the
	// namespace that bpfman runs in. For example: `{name: sigstore-root}`.
	// +required
	TrustedRoot AuthorityReference `json:"trustedRoot"`
}

// AuthorityReference names an item of a Secret or a ConfigMap in the namespace
// that bpfman runs in.
type AuthorityReference struct {
	// name is the name of the Secret or ConfigMap. For example: `acme-keys`.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// key is the name of the item. By default, these are all items of a Secret
	// whose names end in .pub, or the item trusted_root.json of a ConfigMap. For
	// example: `cosign.pub`.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`
}

// AuthorityIdentity is an identity in a certificate. Patterns are regular
// expressions (Go's syntax) that must match the whole value.
// +kubebuilder:validation:XValidation:rule="has(self.issuer) != has(self.issuerPattern)",message="an identity must have either issuer or issuerPattern"
// +kubebuilder:validation:XValidation:rule="has(self.subject) != has(self.subjectPattern)",message="an identity must have either subject or subjectPattern"
type AuthorityIdentity struct {
	// issuer is the URL of the identity provider. For example:
	// `https://token.actions.githubusercontent.com`.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Issuer string `json:"issuer,omitempty"`

	// issuerPattern matches the URL of the identity provider. For example:
	// `https://accounts\.example\.com/.*`.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="type(''.matches(self)) == bool",message="the value must be a regular expression in Go's syntax"
	IssuerPattern string `json:"issuerPattern,omitempty"`

	// subject is the subject alternative name: an email address, or the URI of a
	// workflow. For example: `release@example.com`.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Subject string `json:"subject,omitempty"`

	// subjectPattern matches the subject alternative name. For example:
	// `https://github\.com/acme/.*`.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="type(''.matches(self)) == bool",message="the value must be a regular expression in Go's syntax"
	SubjectPattern string `json:"subjectPattern,omitempty"`
}

// BytecodePolicyStatus is the state of a policy, and the number of programs by
// verdict.
type BytecodePolicyStatus struct {
	// observedGeneration is the metadata.generation that this status describes.
	// For example: `2`.
	// +optional
	// +default=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// allowed is the number of programs, counted on each node, that satisfy the
	// policy. For example: `12`.
	// +optional
	Allowed int32 `json:"allowed"`

	// denied is the number of programs, counted on each node, that violate the
	// policy, whether they are loaded or not. For example: `1`.
	// +optional
	Denied int32 `json:"denied"`

	// warned is the number of programs, counted on each node, that are loaded and
	// that mode `enforce` would refuse. For example: `0`.
	// +optional
	Warned int32 `json:"warned"`

	// authorities identifies the public keys and trusted roots that the policy
	// refers to.
	// +optional
	// +listType=map
	// +listMapKey=name
	Authorities []BytecodeAuthorityStatus `json:"authorities,omitempty"`

	// problem names what the message of the condition Ready is about, as the tables
	// of docs/status.md do. It is absent if they don't have it. For example:
	// `KeyUnusable`.
	// +optional
	Problem string `json:"problem,omitempty"`

	// conditions contains the condition Ready. If it is False, the policy is
	// invalid, for example because a key can't be read, and the condition Stalled
	// follows. An invalid policy denies everything that it matches.
	// +optional
	// +patchMergeKey=type
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchMergeKey:"type" patchStrategy:"merge"`
}

// BytecodeAuthorityStatus identifies the keys and the trusted root of an
// authority.
type BytecodeAuthorityStatus struct {
	// name is the name of the authority. For example: `acme`.
	// +required
	Name string `json:"name"`

	// digest is a hash of the authority's public keys and trusted root. It changes
	// when they are rotated. Nodes then check programs again.
	// +optional
	Digest string `json:"digest,omitempty"`

	// error is the reason why the keys or the trusted root can't be used.
	// +optional
	Error string `json:"error,omitempty"`
}

// The reasons of a BytecodePolicy's conditions.
const (
	PolicyReasonReady   = "Ready"
	PolicyReasonInvalid = "Invalid"
)

// BytecodePolicy restricts which bytecode is loaded, for which objects, and on
// which nodes. If several policies match, the bytecode must satisfy all of
// them. If none matches, the bytecode is loaded.
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

	// status is the state of the policy, and the number of programs by verdict.
	// +optional
	// +default={}
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
