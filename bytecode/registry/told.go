// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package registry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/bpfman/bpfman-operator/bytecode/plain"
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
	var carried *url.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &answered):
		return r.status(answered.StatusCode)
	case errors.As(err, &long):
		return ErrTooLarge
	case errors.As(err, &refused):
		return fmt.Errorf("registry %s %s", host, refused.text)
	case errors.As(err, &unresolved) && unresolved.IsNotFound:
		return fmt.Errorf("registry %s: the name %s can't be resolved", host, plain.Text(unresolved.Name))
	case errors.As(err, &unresolved):
		return fmt.Errorf("registry %s: the name server doesn't answer for %s", host, plain.Text(unresolved.Name))
	case errors.As(err, &waited) && waited.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("registry %s doesn't answer in time", host)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("registry %s refuses connections", host)
	case errors.As(err, &carried):
		return fmt.Errorf("registry %s: %s", host, plain.Text(innermost(carried).Error()))
	}
	return fmt.Errorf("registry %s: %s", host, plain.Text(err.Error()))
}

// status converts the status of a response.
func (r *Repository) status(status int) error {
	host := r.name.RegistryStr()
	switch status {
	case http.StatusNotFound:
		return ErrAbsent
	case http.StatusUnauthorized, http.StatusForbidden:
		if r.authenticated {
			return fmt.Errorf("registry %s refuses the credentials (status %d %s)", host, status, http.StatusText(status))
		}
		return &NeedsCredentialsError{fmt.Errorf("registry %s requires credentials (status %d %s)", host, status, http.StatusText(status))}
	}
	does := "answers with status %d %s"
	if status == http.StatusTooManyRequests {
		does = "limits the number of requests (status %d %s)"
	}
	err := fmt.Errorf("registry %s "+does, host, status, http.StatusText(status))
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
