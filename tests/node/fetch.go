// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// Page is the response of a server.
type Page struct {
	Status int    `json:"status"`
	Body   string `json:"body"`
}

// Fetch gets a page from the node, with a bearer token unless token is empty. It doesn't
// verify the server's certificate, because the components' certificates are self-signed.
func Fetch(ctx context.Context, url, token string) (page Page, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return page, fmt.Errorf("fetch %s: %w", url, err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // see the comment above
	response, err := client.Do(request)
	if err != nil {
		return page, fmt.Errorf("fetch %s: %w", url, err)
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return page, fmt.Errorf("fetch %s: %w", url, err)
	}
	return Page{response.StatusCode, string(body)}, nil
}
