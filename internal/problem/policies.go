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
		Reason:   PoliciesUnknown,
		Messages: []string{"nothing is loaded or attached until the policies are known"},
		ToDo:     "the agent can't read BytecodePolicies: find the cause in the message, and in the log of the API server. The agent retries",
	},
	{
		Reason:   NotVerifiedYet,
		Messages: []string{"hasn't been verified yet", "there is no result for authority"},
		ToDo:     "nothing: the agent verifies the image, and then loads it",
	},
	{
		Reason: NotSigned,
		Messages: []string{
			"(no signature was found",
			"(no attestation of type",
			"(the only … that was found",
			"(none of the … that were found",
			"(no signature)",
		},
		ToDo:  "sign the image with a key or an identity of the policy's authority: see Require signed bytecode",
		Links: []Link{{"Require signed bytecode", "signed-bytecode.md"}},
	},
	{
		Reason:   DigestUnknown,
		Messages: []string{"the image's digest is unknown on this node"},
		ToDo:     "load the object again, so that the node knows the digest: delete the object, and create it again",
	},
	{
		Reason:   NoRuleMatches,
		Messages: []string{"no rule matches image"},
		ToDo:     "use an image that a rule of the policy matches, or have an administrator add a rule",
	},
	{
		Reason:   ImageDenied,
		Messages: []string{"image … is denied"},
		ToDo:     "use another image, or have an administrator change the rule",
	},
	{
		Reason:   NotByDigest,
		Messages: []string{"isn't referenced by digest"},
		ToDo:     "write the image's digest into `bytecode.image.url`: `kubectl bpfman image inspect` prints it",
	},
	{
		Reason:   FileNotSigned,
		Messages: []string{"is a file, and files aren't signed", "can't be checked, because it is a file"},
		ToDo:     "use `bytecode.image` instead of `bytecode.path`",
	},
	{
		Reason:   LimitExceeded,
		Messages: []string{"aren't allowed", "isn't allowed", "priority … is lower than", "priority … is higher than"},
		ToDo:     "change the object to what the policy allows, or have an administrator change the `limits` of its rule",
	},
	{
		Reason:   LimitsNotCheckable,
		Messages: []string{"the helpers and map types of the bytecode can't be determined"},
		ToDo:     "compile the object with clang or bpf-linker, so that its calls can be read, or have an administrator change the `limits` of the rule",
	},
	{
		Reason:   PolicySelectorInvalid,
		Messages: []string{"match.nodeSelector: ", "match.objectSelector: ", "canaries: "},
		ToDo:     "correct this field of the policy: it isn't a valid label selector",
	},
	{
		Reason:   AuthorityNotRead,
		Messages: []string{"authority …: its keys and trusted root haven't been read"},
		ToDo:     "nothing: the operator reads them",
	},
	{
		Reason:   NoSuchAuthority,
		Messages: []string{"authority … doesn't exist", "authority … is unknown"},
		ToDo:     "correct the name in the rule's `signedBy` or `attestations`, or add the authority to the policy",
	},
	{
		Reason:   IdentityInvalid,
		Messages: []string{"identities[…].…: "},
		ToDo:     "correct the regular expression of the identity",
	},
	{
		Reason:   RuleIncomplete,
		Messages: []string{"images is empty", "signedBy of attestation … is empty"},
		ToDo:     "complete the rule of the BytecodePolicy, which the API server didn't check: name images, and authorities for each attestation",
	},
	{
		Reason: AuthorityIncomplete,
		Messages: []string{
			"identities[…] lacks an issuer or a subject",
			"has neither a key nor an identity",
			"it has neither key nor keyless",
			"it has neither keys nor identities",
		},
		ToDo: "complete the authority: it needs a key, or identities with an issuer and a subject each",
	},
	{
		Reason: KeyUnusable,
		Messages: []string{
			"key.pem: ",
			"read Secret",
			"no key … in Secret",
			"no key whose name ends in … in Secret",
			"key … of Secret",
			"its public key",
			"its key can't be used",
		},
		ToDo: "correct the key of the authority, or the Secret in bpfman's namespace that it names: it must be a public key in PEM format",
	},
	{
		Reason:   TrustedRootUnusable,
		Messages: []string{"read ConfigMap", "no key … in ConfigMap", "key … of ConfigMap", "its trusted root", "its identity … can't be used"},
		ToDo:     "correct the trusted root or the identity of the authority, or the ConfigMap in bpfman's namespace that it names",
	},
	{
		Reason:   WouldBeDenied,
		Messages: []string{"mode enforce would deny it"},
		ToDo:     "nothing yet: the policy only warns. Correct it before the policy enforces",
	},
}
