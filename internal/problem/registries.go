// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package problem

// Problems about getting an image from a registry or from the node's store.
const (
	RegistryPending      Reason = "RegistryPending"
	InvalidReference     Reason = "InvalidReference"
	NoSuchImage          Reason = "NoSuchImage"
	ImageIncomplete      Reason = "ImageIncomplete"
	NotInPullSecret      Reason = "NotInPullSecret"
	CredentialsRefused   Reason = "CredentialsRefused"
	PullSecretUnusable   Reason = "PullSecretUnusable"
	RegistryBusy         Reason = "RegistryBusy"
	RegistryFails        Reason = "RegistryFails"
	CertificateUntrusted Reason = "CertificateUntrusted"
	RegistryWithoutTLS   Reason = "RegistryWithoutTLS"
	RegistryUnknown      Reason = "RegistryUnknown"
	RegistryUnreachable  Reason = "RegistryUnreachable"
	RegistrySlow         Reason = "RegistrySlow"
	RegistryAddressLocal Reason = "RegistryAddressLocal"
	RegistryRedirects    Reason = "RegistryRedirects"
	ImageNotOnNode       Reason = "ImageNotOnNode"
	StoreFull            Reason = "StoreFull"
	StoreShareFull       Reason = "StoreShareFull"
	StoreUnusable        Reason = "StoreUnusable"
	ReadAgain            Reason = "ReadAgain"
	ReaderFails          Reason = "ReaderFails"
	TooMuchToRead        Reason = "TooMuchToRead"
	SignatureRequired    Reason = "SignatureRequired"
)

var registries = []Row{
	{
		Reason:   RegistryPending,
		Messages: []string{"waiting for its registry"},
		ToDo:     "nothing yet: the registry hasn't answered completely for five seconds. The object isn't failed meanwhile. The agent gives up after 30 seconds, says why, and tries again",
	},
	{
		Reason:   InvalidReference,
		Messages: []string{"invalid reference format", "its digest is neither sha256 nor sha512", "it has no registry host", "bytecode.image.url …: "},
		ToDo:     "`bytecode.image.url` isn't a reference of an image, such as `quay.io/acme/flows:v1`: correct it",
	},
	{
		Reason:   NoSuchImage,
		Messages: []string{"has no such image"},
		ToDo:     "the registry has no image with this name and tag or digest: correct `bytecode.image.url`, or push the image",
	},
	{
		Reason:   ImageIncomplete,
		Messages: []string{"has no such manifest for this machine", "has no such layer of the image"},
		ToDo:     "the registry lacks a part of the image: push it again",
	},
	{
		Reason:   NotInPullSecret,
		Messages: []string{"has no entry for … and the registry refuses access without credentials"},
		ToDo:     "add an entry for the registry to the pull Secret, with its host and port as in `bytecode.image.url`: see private images",
		Links:    []Link{{"private images", "programs.md#private-images"}},
	},
	{
		Reason:   CredentialsRefused,
		Messages: []string{"requires credentials", "refuses the credentials"},
		ToDo:     "give the object a pull Secret whose login may read the image: see private images. Some registries say the same about images that don't exist",
		Links:    []Link{{"private images", "programs.md#private-images"}},
	},
	{
		Reason: PullSecretUnusable,
		Messages: []string{
			"get pull Secret",
			"pull Secret …: programs in namespace",
			"pull Secret …: its type",
			"pull Secret …: its key",
			"pull Secret …: the auth of a registry",
		},
		ToDo:  "create the pull Secret, or correct its name in `imagepullsecret`. It must be in the namespace of a namespaced object, and have the type and content that private images need",
		Links: []Link{{"private images", "programs.md#private-images"}},
	},
	{
		Reason:   RegistryBusy,
		Messages: []string{"limits the number of requests"},
		ToDo:     "the agent retries, but not before the time that the message names, if it names one. Use a pull Secret if the registry allows more to users who log in, or copy the image to a registry of your own",
	},
	{
		Reason:   RegistryFails,
		Messages: []string{"answers with status"},
		ToDo:     "the registry, or a proxy before it, fails: look for the cause in its logs. The agent retries",
	},
	{
		Reason:   CertificateUntrusted,
		Messages: []string{"tls: failed to verify certificate"},
		ToDo:     "set `bpfman.registry.ca` to the certificate of the registry's authority (PEM). It replaces the authorities in the agent's image, so include the authorities of other registries too",
		Links:    []Link{{"`bpfman.registry.ca`", "configuration.md"}},
	},
	{
		Reason:   RegistryWithoutTLS,
		Messages: []string{"server gave HTTP response to HTTPS client", "the connection doesn't use TLS", "redirects to an address without TLS"},
		ToDo:     "the registry, its token service, or its storage serves HTTP: configure it to use HTTPS",
	},
	{
		Reason:   RegistryUnknown,
		Messages: []string{"the name … can't be resolved", "the name server doesn't answer for"},
		ToDo:     "correct the host in `bytecode.image.url`; or the node's name servers don't know it",
	},
	{
		Reason:   RegistryUnreachable,
		Messages: []string{"doesn't answer in time", "refuses connections", "no route to host", "network is unreachable"},
		ToDo:     "the registry is down, the node has no route to it, or a firewall drops the packets; if the node needs an HTTP proxy, set it",
		Links:    []Link{{"an HTTP proxy", "install.md#install-behind-an-http-proxy"}},
	},
	{
		Reason:   RegistrySlow,
		Messages: []string{"registry … is too slow", "reading the image takes longer than", "there was not enough time to check all signatures"},
		ToDo:     "the registry, or the network to it, is too slow to read the image within 30 seconds: use a registry closer to the nodes. If somebody has stored thousands of signatures with the image, delete them",
	},
	{
		Reason:   RegistryAddressLocal,
		Messages: []string{"which is an address of this machine or its links", "which is an address of a cloud's metadata service"},
		ToDo:     "the registry leads the node to an address that is only for the node, and the agent doesn't follow: correct the address that the registry announces for tokens or storage. If the registry runs on the node, name this address in `bytecode.image.url`",
	},
	{
		Reason:   RegistryRedirects,
		Messages: []string{"redirects too often", "redirects to an invalid address"},
		ToDo:     "the registry's configuration is wrong: its redirects lead nowhere",
	},
	{
		Reason:   ImageNotOnNode,
		Messages: []string{"isn't on this node, and the pull policy is Never"},
		ToDo:     "the node doesn't have this image: no object on the node has used it, or the agent removed it because no object used it anymore. Use another pull policy",
	},
	{
		Reason:   StoreFull,
		Messages: []string{"the node's store of bytecode is full"},
		ToDo:     "objects on the node use all of the space: delete some, or increase `bpfman.bytecode.store.size`",
		Links:    []Link{{"`bpfman.bytecode.store.size`", "configuration.md#bytecode"}},
	},
	{
		Reason:   StoreShareFull,
		Messages: []string{"the objects of the namespace use … MiB in the node's store of bytecode"},
		ToDo:     "the objects of the namespace use their share of the space: delete some, use smaller images, or have an administrator increase `bpfman.bytecode.store.size`",
		Links:    []Link{{"`bpfman.bytecode.store.size`", "configuration.md#bytecode"}},
	},
	{
		Reason: StoreUnusable,
		Messages: []string{
			"the store of bytecode:",
			"store bytecode:",
			"remove an unused object:",
			"read record",
			"read object:",
			"no space left on device",
		},
		ToDo: "the agent can't use `/var/lib/bpfman/bytecode` on the node: make space on the disk, or mount it read-write",
	},
	{
		Reason: ReadAgain,
		Messages: []string{
			"answered about another one",
			"answered about another object",
			"its object isn't in the store",
			"its object is … with … bytes instead of",
			"is not a digest",
		},
		ToDo: "nothing: the agent reads the image again. If the message stays, restart the agent on that node: delete its pod of `bpfman-daemon`",
	},
	{
		Reason: ReaderFails,
		Messages: []string{
			"bpfman-reader didn't answer within",
			"run bpfman-reader:",
			"find bpfman-reader:",
			"read the answer of bpfman-reader:",
			"encode the request to bpfman-reader:",
		},
		ToDo: "the process that reads images was killed, or can't start: check the memory limit of the container `bpfman-agent`, and whether the node is overloaded",
	},
	{
		Reason: TooMuchToRead,
		Messages: []string{
			"the answer of bpfman-reader has more than",
			"the answer is too long",
			"the keys and trusted roots of the policies have",
			"can't be used: it has more than … functions",
			"maps or variables",
		},
		ToDo: "the image or the policies have more functions, maps, keys, or attestations than can be handled: split them",
	},
	{
		Reason:   SignatureRequired,
		Messages: []string{"bpfman.toml has verify_enabled = true and allow_unsigned = false"},
		ToDo:     "write a BytecodePolicy that requires a signature for the image, or remove `allow_unsigned`: see signatures in bpfman.toml",
		Links:    []Link{{"signatures in bpfman.toml", "configuration.md#signatures-in-bpfmantoml"}},
	},
}
