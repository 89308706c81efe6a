// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package cluster

import (
	"net/http"

	"github.com/bpfman/bpfman-operator/agent/breaker"
)

// impatient fails requests immediately while the API server doesn't respond, except for one every few seconds. It lets
// requests without a deadline through: these are the reflectors' lists and watches, for which nobody waits.
type impatient struct {
	next    http.RoundTripper
	breaker *breaker.Breaker
}

// RoundTrip implements [http.RoundTripper].
func (i *impatient) RoundTrip(request *http.Request) (response *http.Response, err error) {
	if _, limited := request.Context().Deadline(); !limited {
		return i.next.RoundTrip(request)
	}
	err = i.breaker.Do(func() error {
		response, err = i.next.RoundTrip(request) //nolint:bodyclose // the caller closes it
		return err
	})
	return response, err
}
