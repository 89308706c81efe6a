// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package problem

// Problems about the form of an image.
const (
	NoManifestForPlatform Reason = "NoManifestForPlatform"
	SeveralLayers         Reason = "SeveralLayers"
	SeveralFiles          Reason = "SeveralFiles"
	LayerMediaType        Reason = "LayerMediaType"
	ObjectTooLarge        Reason = "ObjectTooLarge"
	LayerMalformed        Reason = "LayerMalformed"
	ImageDamaged          Reason = "ImageDamaged"
	ManifestUnusable      Reason = "ManifestUnusable"
)

var images = []Row{
	{
		Reason: NoManifestForPlatform,
		ToDo:   "build the image for the node's architecture too, or select other nodes with `nodeselector`",
	},
	{
		Reason: SeveralLayers,
		ToDo:   "build the image from one file with one `COPY`, see images that nodes accept",
		Links:  []Link{{"images that nodes accept", "programs.md#images-that-nodes-accept"}},
	},
	{
		Reason: SeveralFiles,
		ToDo:   "build the image with exactly one file in its layer, which is the object, and no links: see images that nodes accept",
		Links:  []Link{{"images that nodes accept", "programs.md#images-that-nodes-accept"}},
	},
	{
		Reason: LayerMediaType,
		ToDo:   "build or copy the image with gzip instead of zstd, and without another type of artifact",
	},
	{
		Reason: ObjectTooLarge,
		ToDo:   "remove the object's debug sections with `llvm-strip -g`, or split it",
	},
	{
		Reason: LayerMalformed,
		ToDo:   "build the image with a tool that writes the accepted form. GNU tar needs `--format=pax`. If the image is from somebody else, it may be an attack: the message names what other programs read in another way",
		Links:  []Link{{"a tool that writes the accepted form", "programs.md#build-an-image-with-other-tools"}},
	},
	{
		Reason: ImageDamaged,
		ToDo:   "the registry's content is damaged: push the image again",
	},
	{
		Reason: ManifestUnusable,
		ToDo:   "the manifest isn't one of a bytecode image, or can be read in several ways: build the image with another tool",
		Links:  []Link{{"another tool", "programs.md#build-an-image-with-other-tools"}},
	},
}
