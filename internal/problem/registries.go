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
		Reason: RegistryPending,
		ToDo:   "nothing yet: the registry hasn't answered completely for five seconds. The object isn't failed meanwhile. The agent gives up after 30 seconds, says why, and tries again",
	},
	{
		Reason: InvalidReference,
		ToDo:   "`bytecode.image.url` isn't a reference of an image, such as `quay.io/acme/flows:v1`: correct it",
	},
	{
		Reason: NoSuchImage,
		ToDo:   "the registry has no image with this name and tag or digest: correct `bytecode.image.url`, or push the image",
	},
	{
		Reason: ImageIncomplete,
		ToDo:   "the registry lacks a part of the image: push it again",
	},
	{
		Reason: NotInPullSecret,
		ToDo:   "add an entry for the registry to the pull Secret, with its host and port as in `bytecode.image.url`: see private images",
		Links:  []Link{{"private images", "programs.md#private-images"}},
	},
	{
		Reason: CredentialsRefused,
		ToDo:   "give the object a pull Secret whose login may read the image: see private images. Some registries say the same about images that don't exist",
		Links:  []Link{{"private images", "programs.md#private-images"}},
	},
	{
		Reason: PullSecretUnusable,
		ToDo:   "create the pull Secret, or correct its name in `imagepullsecret`. It must be in the namespace of a namespaced object, and have the type and content that private images need",
		Links:  []Link{{"private images", "programs.md#private-images"}},
	},
	{
		Reason: RegistryBusy,
		ToDo:   "the agent retries, but not before the time that the message names, if it names one. Use a pull Secret if the registry allows more to users who log in, or copy the image to a registry of your own",
	},
	{
		Reason: RegistryFails,
		ToDo:   "the registry, or a proxy before it, fails: look for the cause in its logs. The agent retries",
	},
	{
		Reason: CertificateUntrusted,
		ToDo:   "set `bpfman.registry.ca` to the certificate of the registry's authority (PEM). It replaces the authorities in the agent's image, so include the authorities of other registries too",
		Links:  []Link{{"`bpfman.registry.ca`", "configuration.md"}},
	},
	{
		Reason: RegistryWithoutTLS,
		ToDo:   "the registry, its token service, or its storage serves HTTP: configure it to use HTTPS",
	},
	{
		Reason: RegistryUnknown,
		ToDo:   "correct the host in `bytecode.image.url`; or the node's name servers don't know it",
	},
	{
		Reason: RegistryUnreachable,
		ToDo:   "the registry is down, the node has no route to it, or a firewall drops the packets; if the node needs an HTTP proxy, set it",
		Links:  []Link{{"an HTTP proxy", "install.md#install-behind-an-http-proxy"}},
	},
	{
		Reason: RegistrySlow,
		ToDo:   "the registry, or the network to it, is too slow to read the image within 30 seconds: use a registry closer to the nodes. If somebody has stored thousands of signatures with the image, delete them",
	},
	{
		Reason: RegistryAddressLocal,
		ToDo:   "the registry leads the node to an address that is only for the node, and the agent doesn't follow: correct the address that the registry announces for tokens or storage. If the registry runs on the node, name this address in `bytecode.image.url`",
	},
	{
		Reason: RegistryRedirects,
		ToDo:   "the registry's configuration is wrong: its redirects lead nowhere",
	},
	{
		Reason: ImageNotOnNode,
		ToDo:   "the node doesn't have this image: no object on the node has used it, or the agent removed it because no object used it anymore. Use another pull policy",
	},
	{
		Reason: StoreFull,
		ToDo:   "objects on the node use all of the space: delete some, or increase `bpfman.bytecode.store.size`",
		Links:  []Link{{"`bpfman.bytecode.store.size`", "configuration.md#bytecode"}},
	},
	{
		Reason: StoreShareFull,
		ToDo:   "the objects of the namespace use their share of the space: delete some, use smaller images, or have an administrator increase `bpfman.bytecode.store.size`",
		Links:  []Link{{"`bpfman.bytecode.store.size`", "configuration.md#bytecode"}},
	},
	{
		Reason: StoreUnusable,
		ToDo:   "the agent can't use `/var/lib/bpfman/bytecode` on the node: make space on the disk, or mount it read-write",
	},
	{
		Reason: ReadAgain,
		ToDo:   "nothing: the agent reads the image again. If the message stays, restart the agent on that node: delete its pod of `bpfman-daemon`",
	},
	{
		Reason: ReaderFails,
		ToDo:   "the process that reads images was killed, or can't start: check the memory limit of the container `bpfman-agent`, and whether the node is overloaded",
	},
	{
		Reason: TooMuchToRead,
		ToDo:   "the image or the policies have more functions, maps, keys, or attestations than can be handled: split them",
	},
	{
		Reason: SignatureRequired,
		ToDo:   "write a BytecodePolicy that requires a signature for the image, or remove `allow_unsigned`: see signatures in bpfman.toml",
		Links:  []Link{{"signatures in bpfman.toml", "configuration.md#signatures-in-bpfmantoml"}},
	},
}
