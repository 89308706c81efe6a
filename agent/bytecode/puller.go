// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bytecode

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/distribution/reference"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

const (
	// headerDeadline is the timeout for the headers of a registry's response.
	// lookDeadline is the timeout for the complete check of an image.
	headerDeadline = 5 * time.Second
	lookDeadline   = time.Minute
)

// puller reads from one repository of a registry.
type puller struct {
	client     *remote.Puller
	wire       *wire
	repository name.Repository
	version    name.Reference
}

func newPuller(image string, c Credentials, transport http.RoundTripper) (*puller, error) {
	named, err := parse(image)
	if err != nil {
		return nil, err
	}
	address, _ := addressOf(image)
	registry, err := name.NewRegistry(address)
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", image, err)
	}
	if transport == nil {
		own := http.DefaultTransport.(*http.Transport).Clone() //nolint:errcheck,forcetypeassert // its documented type
		own.ResponseHeaderTimeout = headerDeadline
		transport = own
	}
	p := &puller{wire: &wire{http.Client{Transport: transport}, maxDocument}, repository: registry.Repo(reference.Path(named))}
	if digested, ok := named.(reference.Digested); ok {
		if p.version, err = p.part(digested.Digest().String()); err != nil {
			return nil, err
		}
	} else if tagged, ok := reference.TagNameOnly(named).(reference.Tagged); ok {
		p.version = p.repository.Tag(tagged.Tag())
	}
	auth := authn.Anonymous
	if c != (Credentials{}) {
		// With Username and Password, the library would send neither if one of them
		// is empty.
		auth = authn.FromConfig(authn.AuthConfig{Auth: base64.StdEncoding.EncodeToString([]byte(c.Username + ":" + c.Password))})
	}
	// No retries, because the daemon retries.
	once := remote.WithRetryBackoff(remote.Backoff{Steps: 1})
	if p.client, err = remote.NewPuller(remote.WithTransport(p.wire), remote.WithAuth(auth), once); err != nil {
		return nil, fmt.Errorf("image %s: %w", image, err)
	}
	return p, nil
}

func (p *puller) close() { p.wire.client.CloseIdleConnections() }

// part returns the reference of a part of the image. The daemon supports more
// digest algorithms than the library, and would decompress parts that aren't
// checked.
func (p *puller) part(digest string) (name.Digest, error) {
	algorithm, _, _ := strings.Cut(digest, ":")
	if _, err := v1.Hasher(algorithm); err != nil {
		return name.Digest{}, &unfitError{"the image has a digest that is neither sha256 nor sha512"}
	}
	return p.repository.Digest(digest), nil
}

// wire sends the library's requests. It limits responses, because the library
// reads manifests of up to 100 MB. It requires TLS, because the library doesn't
// use TLS for addresses that look local. It is as lenient as the daemon about
// redirects, and about the response for the root of the API.
type wire struct {
	client http.Client
	limit  int64
}

func (w *wire) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Scheme != "https" {
		return nil, errors.New("the connection doesn't use TLS")
	}
	response, err := w.client.Do(request) //nolint:gosec // the user chooses the image
	if err != nil {
		return nil, err //nolint:wrapcheck // a transport returns errors unchanged
	}
	if request.URL.Path == "/v2/" && response.StatusCode != http.StatusUnauthorized {
		response.StatusCode = http.StatusOK
	}
	response.Body = http.MaxBytesReader(nil, response.Body, w.limit)
	return response, nil
}
