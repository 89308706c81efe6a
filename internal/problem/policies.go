// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package problem

// Problems about policies.
const (
	PoliciesUnknown       Reason = "PoliciesUnknown"
	NotVerifiedYet        Reason = "NotVerifiedYet"
	NotSigned             Reason = "NotSigned"
	DigestUnknown         Reason = "DigestUnknown"
	NoRuleMatches         Reason = "NoRuleMatches"
	ImageDenied           Reason = "ImageDenied"
	NotByDigest           Reason = "NotByDigest"
	FileNotSigned         Reason = "FileNotSigned"
	LimitExceeded         Reason = "LimitExceeded"
	LimitsNotCheckable    Reason = "LimitsNotCheckable"
	PolicySelectorInvalid Reason = "PolicySelectorInvalid"
	AuthorityNotRead      Reason = "AuthorityNotRead"
	NoSuchAuthority       Reason = "NoSuchAuthority"
	IdentityInvalid       Reason = "IdentityInvalid"
	AuthorityIncomplete   Reason = "AuthorityIncomplete"
	RuleIncomplete        Reason = "RuleIncomplete"
	KeyUnusable           Reason = "KeyUnusable"
	TrustedRootUnusable   Reason = "TrustedRootUnusable"
	WouldBeDenied         Reason = "WouldBeDenied"
)

var policies = []Row{
	{
		Reason: PoliciesUnknown,
		ToDo:   "the agent can't read BytecodePolicies: find the cause in the message, and in the log of the API server. The agent retries",
	},
	{
		Reason: NotVerifiedYet,
		ToDo:   "nothing: the agent verifies the image, and then loads it",
	},
	{
		Reason: NotSigned,
		ToDo:   "sign the image with a key or an identity of the policy's authority: see Require signed bytecode",
		Links:  []Link{{"Require signed bytecode", "signed-bytecode.md"}},
	},
	{
		Reason: DigestUnknown,
		ToDo:   "load the object again, so that the node knows the digest: delete the object, and create it again",
	},
	{
		Reason: NoRuleMatches,
		ToDo:   "use an image that a rule of the policy matches, or have an administrator add a rule",
	},
	{
		Reason: ImageDenied,
		ToDo:   "use another image, or have an administrator change the rule",
	},
	{
		Reason: NotByDigest,
		ToDo:   "write the image's digest into `bytecode.image.url`: `kubectl bpfman image inspect` prints it",
	},
	{
		Reason: FileNotSigned,
		ToDo:   "use `bytecode.image` instead of `bytecode.path`",
	},
	{
		Reason: LimitExceeded,
		ToDo:   "change the object to what the policy allows, or have an administrator change the `limits` of its rule",
	},
	{
		Reason: LimitsNotCheckable,
		ToDo:   "compile the object with clang or bpf-linker, so that its calls can be read, or have an administrator change the `limits` of the rule",
	},
	{
		Reason: PolicySelectorInvalid,
		ToDo:   "correct this field of the policy: it isn't a valid label selector",
	},
	{
		Reason: AuthorityNotRead,
		ToDo:   "nothing: the operator reads them",
	},
	{
		Reason: NoSuchAuthority,
		ToDo:   "correct the name in the rule's `signedBy` or `attestations`, or add the authority to the policy",
	},
	{
		Reason: IdentityInvalid,
		ToDo:   "correct the regular expression of the identity",
	},
	{
		Reason: RuleIncomplete,
		ToDo:   "complete the rule of the BytecodePolicy, which the API server didn't check: name images, and authorities for each attestation",
	},
	{
		Reason: AuthorityIncomplete,
		ToDo:   "complete the authority: it needs a key, or identities with an issuer and a subject each",
	},
	{
		Reason: KeyUnusable,
		ToDo:   "correct the key of the authority, or the Secret in bpfman's namespace that it names: it must be a public key in PEM format",
	},
	{
		Reason: TrustedRootUnusable,
		ToDo:   "correct the trusted root or the identity of the authority, or the ConfigMap in bpfman's namespace that it names",
	},
	{
		Reason: WouldBeDenied,
		ToDo:   "nothing yet: the policy only warns. Correct it before the policy enforces",
	},
}
