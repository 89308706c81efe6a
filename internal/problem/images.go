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
		Reason:   NoManifestForPlatform,
		Messages: []string{"it has no manifest for linux/"},
		ToDo:     "build the image for the node's architecture too, or select other nodes with `nodeselector`",
	},
	{
		Reason:   SeveralLayers,
		Messages: []string{"layers instead of one"},
		ToDo:     "build the image from one file with one `COPY`, see images that nodes accept",
		Links:    []Link{{"images that nodes accept", "programs.md#images-that-nodes-accept"}},
	},
	{
		Reason:   SeveralFiles,
		Messages: []string{"its layer contains"},
		ToDo:     "build the image with exactly one file in its layer, which is the object, and no links: see images that nodes accept",
		Links:    []Link{{"images that nodes accept", "programs.md#images-that-nodes-accept"}},
	},
	{
		Reason:   LayerMediaType,
		Messages: []string{"its layer has the media type", "its layer isn't in gzip's format"},
		ToDo:     "build or copy the image with gzip instead of zstd, and without another type of artifact",
	},
	{
		Reason: ObjectTooLarge,
		Messages: []string{
			"bytes; the limit is",
			"its file has more than",
			"its layer has more than",
			"can't be used: it has more than … MiB",
			"its sections have more than",
			"its options have more than",
		},
		ToDo: "remove the object's debug sections with `llvm-strip -g`, or split it",
	},
	{
		Reason: LayerMalformed,
		Messages: []string{
			"its layer isn't a tar archive",
			"its layer ends too early",
			"its layer ends with more than",
			"its layer has data",
			"its layer's gzip checksum",
			"its layer's archive doesn't end",
			"its layer can't be decompressed",
			"its layer has a tar header",
			"its layer has a pax header",
			"its layer has a malformed pax header",
		},
		ToDo:  "build the image with a tool that writes the accepted form. GNU tar needs `--format=pax`. If the image is from somebody else, it may be an attack: the message names what other programs read in another way",
		Links: []Link{{"a tool that writes the accepted form", "programs.md#build-an-image-with-other-tools"}},
	},
	{
		Reason:   ImageDamaged,
		Messages: []string{"its layer is larger than its manifest says", "its manifest says that the layer has", "its index says that manifest"},
		ToDo:     "the registry's content is damaged: push the image again",
	},
	{
		Reason: ManifestUnusable,
		Messages: []string{
			"its manifest isn't valid JSON",
			"its manifest has",
			"its index has two different manifests",
			"its index has layers",
			"manifests; the limit is",
			"its index contains another index",
			"isn't a sha256 digest",
			"its layer has URLs",
			"its layer is embedded",
		},
		ToDo:  "the manifest isn't one of a bytecode image, or can be read in several ways: build the image with another tool",
		Links: []Link{{"another tool", "programs.md#build-an-image-with-other-tools"}},
	},
}
