// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package reader

import (
	"net"
	"net/netip"
	"strings"

	"github.com/distribution/reference"

	"github.com/bpfman/bpfman-operator/internal/problem"
)

// Reference is what the reference of an image means: for policies, credentials, and the
// process that reads the image.
type Reference struct {
	// Repository is the full name of the repository, such as quay.io/acme/xdp-pass or
	// docker.io/library/busybox, with the host in lower case and without the port 443.
	Repository string
	// Tag is the tag of the reference, or "latest" if the reference has neither tag nor
	// digest. If the reference has a digest, Tag is empty, because the tag has no effect
	// then.
	Tag string
	// Digest is the digest of the reference, such as sha256:… .
	Digest string
}

// ParseReference parses the reference of an image as users write it.
func ParseReference(image string) (Reference, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return Reference{}, &problem.Error{Reason: problem.InvalidReference, Err: err} // callers say which image, and where it is written
	}
	// The parser recognizes the default registry only in lower case, and treats what
	// can't be a host as a part of the path.
	host, repository := PlainHost(reference.Domain(named)), reference.Path(named)
	switch host {
	case "":
		return Reference{}, problem.Errorf(problem.InvalidReference, "it has no registry host")
	case "docker.io":
		if !strings.Contains(repository, "/") {
			repository = "library/" + repository
		}
	}
	parsed := Reference{Repository: host + "/" + repository}
	if digested, ok := named.(reference.Digested); ok {
		parsed.Digest = digested.Digest().String()
	} else if tagged, ok := reference.TagNameOnly(named).(reference.Tagged); ok {
		parsed.Tag = tagged.Tag()
	}
	return parsed, nil
}

// PlainHost returns the one name of a registry's host: in lower case, without the port 443, and
// docker.io for index.docker.io, which the parser takes for the same. Addresses and ports have
// several spellings, such as [0::1]:0443, of which the network knows only one.
func PlainHost(host string) string {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name, port = strings.Trim(host, "[]"), ""
	}
	name = strings.ToLower(name)
	if address, err := netip.ParseAddr(name); err == nil {
		name = address.Unmap().String()
	}
	if strings.Contains(name, ":") {
		name = "[" + name + "]"
	}
	switch port = strings.TrimLeft(port, "0"); {
	case port != "" && port != "443":
		return name + ":" + port
	case name == "index.docker.io":
		return "docker.io"
	}
	return name
}

// Host returns the host of the registry.
func (r Reference) Host() string {
	host, _, _ := strings.Cut(r.Repository, "/")
	return host
}

// String returns the reference in its one form.
func (r Reference) String() string {
	switch {
	case r.Digest != "":
		return r.Repository + "@" + r.Digest
	case r.Tag != "":
		return r.Repository + ":" + r.Tag
	}
	return r.Repository
}
