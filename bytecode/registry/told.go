// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package registry

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/bpfman/bpfman-operator/bytecode/plain"
	"github.com/bpfman/bpfman-operator/internal/problem"
)

// told converts an error for users. The result contains neither addresses, which can
// include secrets, nor bodies of responses, which can repeat a password.
func (r *Repository) told(err error) error {
	host := r.name.RegistryStr()
	var answered *transport.Error
	var refused *refusedError
	var long *http.MaxBytesError
	var unresolved *net.DNSError
	var waited net.Error
	var untrusted *tls.CertificateVerificationError
	var carried *url.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &answered):
		return r.status(answered.StatusCode)
	case errors.As(err, &long):
		return ErrTooLarge
	case errors.As(err, &refused):
		return problem.Errorf(refused.reason, "registry %s %s", host, refused.text)
	case errors.As(err, &unresolved) && unresolved.IsNotFound:
		return problem.Errorf(problem.RegistryUnknown, "registry %s: the name %s can't be resolved", host, plain.Text(unresolved.Name))
	case errors.As(err, &unresolved):
		return problem.Errorf(problem.RegistryUnknown, "registry %s: the name server doesn't answer for %s", host, plain.Text(unresolved.Name))
	case errors.As(err, &waited) && waited.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return problem.Errorf(problem.RegistryUnreachable, "registry %s doesn't answer in time", host)
	case errors.Is(err, syscall.ECONNREFUSED):
		return problem.Errorf(problem.RegistryUnreachable, "registry %s refuses connections", host)
	case errors.As(err, &untrusted):
		return problem.Errorf(problem.CertificateUntrusted, "registry %s has a certificate that isn't trusted: %s", host, plain.Text(untrusted.Err.Error()))
	case errors.Is(err, http.ErrSchemeMismatch):
		return problem.Errorf(problem.RegistryWithoutTLS, "registry %s answers without TLS", host)
	case errors.Is(err, syscall.EHOSTUNREACH):
		return problem.Errorf(problem.RegistryUnreachable, "registry %s: the node has no route to it", host)
	case errors.Is(err, syscall.ENETUNREACH):
		return problem.Errorf(problem.RegistryUnreachable, "registry %s: the node can't reach its network", host)
	case errors.As(err, &carried):
		err = innermost(carried)
	}
	return problem.Errorf(problem.Of(err), "registry %s: %s", host, plain.Text(err.Error()))
}

// status converts the status of a response.
func (r *Repository) status(status int) error {
	host := r.name.RegistryStr()
	switch status {
	case http.StatusNotFound:
		return ErrAbsent
	case http.StatusUnauthorized, http.StatusForbidden:
		if r.authenticated {
			return problem.Errorf(problem.CredentialsRefused, "registry %s refuses the credentials (status %d %s)", host, status, http.StatusText(status))
		}
		return &NeedsCredentialsError{problem.Errorf(problem.CredentialsRefused, "registry %s requires credentials (status %d %s)", host, status, http.StatusText(status))}
	}
	err := problem.Errorf(problem.RegistryFails, "registry %s answers with status %d %s", host, status, http.StatusText(status))
	if status == http.StatusTooManyRequests {
		err = problem.Errorf(problem.RegistryBusy, "registry %s limits the number of requests (status %d %s)", host, status, http.StatusText(status))
	}
	if wait := time.Duration(r.wire.wait.Load()); isBusy(status) && wait > 0 {
		return &BusyError{err, wait}
	}
	return err
}

// NeedsCredentialsError means that a registry refuses requests without credentials.
type NeedsCredentialsError struct{ error }

func (e *NeedsCredentialsError) Unwrap() error { return e.error }

// BusyError means that a registry asked to wait.
type BusyError struct {
	error

	// Wait is how long.
	Wait time.Duration
}

func (e *BusyError) Unwrap() error { return e.error }

// innermost returns the cause of an error, without the requests around it.
func innermost(err *url.Error) error {
	for {
		var inner *url.Error
		if !errors.As(err.Err, &inner) {
			return err.Err
		}
		err = inner
	}
}
