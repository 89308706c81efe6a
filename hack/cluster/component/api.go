// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package component

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// API makes the requests to the API server that starting the cluster needs.
type API struct {
	settings Settings
	http     http.Client
}

// NewAPI returns an administrator's client for the cluster's API server.
func NewAPI(s Settings) (*API, error) {
	ca, err := os.ReadFile(s.Dir("pki", "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("read the cluster's CA: %w", err)
	}
	client, err := tls.LoadX509KeyPair(s.Dir("pki", "admin-user.crt"), s.Dir("pki", "admin-user.key"))
	if err != nil {
		return nil, fmt.Errorf("read the administrator's certificate: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &API{settings: s, http: http.Client{
		Timeout: 5 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{
			RootCAs: roots, Certificates: []tls.Certificate{client}, MinVersion: tls.VersionTLS12,
		}},
	}}, nil
}

// Ready returns nil if the API server is ready.
func (a *API) Ready(ctx context.Context) error {
	return a.get(ctx, "/readyz", nil)
}

// NodeReady returns nil if the node has become ready in a later second than since, and
// pods can be created, which requires the default ServiceAccount.
func (a *API) NodeReady(ctx context.Context, since time.Time) error {
	var node struct {
		Status struct {
			Conditions []struct {
				Type, Status, Message string
				LastHeartbeatTime     time.Time
			}
		}
	}
	if err := a.get(ctx, "/api/v1/nodes/"+a.settings.Node, &node); err != nil {
		return err
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == "Ready" && condition.LastHeartbeatTime.After(since) {
			if condition.Status != "True" {
				return fmt.Errorf("the node is not ready: %s", condition.Message)
			}
			return a.get(ctx, "/api/v1/namespaces/default/serviceaccounts/default", nil)
		}
	}
	return errors.New("the node has not reported yet")
}

// DeleteNode deletes the Node object, if it exists.
func (a *API) DeleteNode(ctx context.Context) error {
	err := a.do(ctx, http.MethodDelete, "/api/v1/nodes/"+a.settings.Node, nil)
	if errors.Is(err, errNotFound) {
		return nil
	}
	return err
}

// get decodes the JSON document at path into result, unless result is nil.
func (a *API) get(ctx context.Context, path string, result any) error {
	return a.do(ctx, http.MethodGet, path, result)
}

var errNotFound = errors.New("there is none")

func (a *API) do(ctx context.Context, method, path string, result any) error {
	request, err := http.NewRequestWithContext(ctx, method, a.settings.Server()+path, nil)
	if err != nil {
		return fmt.Errorf("ask the API server for %s: %w", path, err)
	}
	response, err := a.http.Do(request)
	if err != nil {
		return fmt.Errorf("ask the API server: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("read the API server's answer for %s: %w", path, err)
	}
	if response.StatusCode == http.StatusNotFound {
		return fmt.Errorf("ask the API server for %s: %w", path, errNotFound)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("ask the API server for %s: %s", path, response.Status)
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(body, result); err != nil {
		return fmt.Errorf("parse the API server's answer for %s: %w", path, err)
	}
	return nil
}

// Wait calls ask until it returns nil, or until the context ends. Then the error contains
// the last error of ask.
func Wait(ctx context.Context, ask func(context.Context) error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}
