// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package simulation

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
)

// respond returns the response of an API server that fails a request.
func respond(q *http.Request, failed *apierrors.StatusError) *http.Response {
	status := failed.Status()
	status.APIVersion, status.Kind = "v1", "Status"
	header := http.Header{"Content-Type": {runtime.ContentTypeJSON}}
	if d := status.Details; d != nil && d.RetryAfterSeconds > 0 {
		header.Set("Retry-After", strconv.Itoa(int(d.RetryAfterSeconds)))
	}
	body, err := json.Marshal(status)
	if err != nil {
		panic(err) // it has plain fields
	}
	return &http.Response{
		StatusCode: int(status.Code), Status: http.StatusText(int(status.Code)), Proto: "HTTP/2.0", ProtoMajor: 2, //nolint:mnd // as the API server
		Header: header, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: q,
	}
}
