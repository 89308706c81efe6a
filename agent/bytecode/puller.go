// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bytecode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/distribution/reference"
)

const (
	// headerDeadline is how long a registry may take to begin an answer,
	// lookDeadline how long all of an image may take.
	headerDeadline = 5 * time.Second
	lookDeadline   = time.Minute
)

// The kinds of manifest that the daemon takes.
const manifestTypes = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json, " +
	"application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json"

// puller reads one repository of a registry, over the distribution API. A
// library's client would bring more code than the rest of this package.
type puller struct {
	client        *http.Client
	base          string // URL of the repository
	repository    string
	version       string // tag or digest
	credentials   Credentials
	authorization string
}

func newPuller(image string, c Credentials, transport http.RoundTripper) (*puller, error) {
	named, err := parse(image)
	if err != nil {
		return nil, err
	}
	address, _ := addressOf(image)
	p := &puller{
		repository:  reference.Path(named),
		version:     "latest",
		credentials: c,
		client:      &http.Client{Transport: transport},
	}
	p.base = "https://" + address + "/v2/" + p.repository + "/"
	if tagged, ok := named.(reference.Tagged); ok {
		p.version = tagged.Tag()
	}
	if digested, ok := named.(reference.Digested); ok {
		p.version = digested.Digest().String()
	}
	if transport == nil {
		own := http.DefaultTransport.(*http.Transport).Clone() //nolint:errcheck,forcetypeassert // it is documented to be one
		own.ResponseHeaderTimeout = headerDeadline
		p.client.Transport = own
	}
	return p, nil
}

func (p *puller) close() { p.client.CloseIdleConnections() }

// get asks for a part of the repository, with credentials if it is asked for them.
func (p *puller) get(ctx context.Context, part string) (*http.Response, error) {
	for {
		response, err := p.send(ctx, p.base+part, p.authorization)
		if err != nil {
			return nil, err
		}
		if response.StatusCode == http.StatusOK {
			return response, nil
		}
		_ = response.Body.Close() // nothing of it is wanted
		if response.StatusCode != http.StatusUnauthorized || p.authorization != "" {
			return nil, fmt.Errorf("get %s%s: %s", p.base, part, response.Status)
		}
		if p.authorization, err = p.authorize(ctx, response.Header.Get("WWW-Authenticate")); err != nil {
			return nil, err
		}
	}
}

func (p *puller) send(ctx context.Context, from, authorization string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", from, err)
	}
	request.Header.Set("Accept", manifestTypes)
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	response, err := p.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", from, err)
	}
	return response, nil
}

var parameter = regexp.MustCompile(`(\w+)="([^"]*)"`)

// authorize does what a registry's challenge asks for, and returns the header
// to send with each request.
func (p *puller) authorize(ctx context.Context, challenge string) (string, error) {
	request := &http.Request{Header: http.Header{}}
	if p.credentials != (Credentials{}) {
		request.SetBasicAuth(p.credentials.Username, p.credentials.Password)
	}
	basic := request.Header.Get("Authorization")
	scheme, parameters, _ := strings.Cut(challenge, " ")
	if strings.EqualFold(scheme, "Basic") && basic != "" {
		return basic, nil
	}
	if !strings.EqualFold(scheme, "Bearer") {
		return "", fmt.Errorf("%s asks for credentials: %q", p.base, challenge)
	}
	asked := map[string]string{}
	for _, match := range parameter.FindAllStringSubmatch(parameters, -1) {
		asked[match[1]] = match[2]
	}
	realm, err := url.Parse(asked["realm"])
	if err != nil || realm.Scheme != "https" {
		return "", fmt.Errorf("%s sends for a token to %q", p.base, asked["realm"])
	}
	query := realm.Query()
	query.Set("service", asked["service"])
	query.Set("scope", "repository:"+p.repository+":pull")
	realm.RawQuery = query.Encode()
	return p.token(ctx, realm.String(), basic)
}

func (p *puller) token(ctx context.Context, from, authorization string) (string, error) {
	response, err := p.send(ctx, from, authorization)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	var answer struct {
		Token       string `json:"token"`
		AccessToken string `json:"access_token"`
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxDocument)).Decode(&answer); err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}
	if answer.Token == "" {
		answer.Token = answer.AccessToken
	}
	if answer.Token == "" {
		return "", errors.New("the registry gave no token: " + response.Status)
	}
	return "Bearer " + answer.Token, nil
}
