// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package reports

import (
	"context"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
)

// listWatch lists and watches one kind of reports, and decodes the responses as they arrive. A reflector only
// lists if the API server doesn't send all reports as the first events of a watch. With hundreds of thousands of
// reports, a single list takes the API server about as long as its request timeout, and pages take longer.
func listWatch(api rest.Interface, resource string, codec runtime.ParameterCodec) *toolscache.ListWatch {
	request := func(o metav1.ListOptions) *rest.Request {
		return api.Get().Resource(resource).VersionedParams(&o, codec).
			// Without compression: for hundreds of megabytes, it would take the API server a long time.
			SetHeader("Accept-Encoding", "identity")
	}
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.Limit = 0
			body, err := request(o).Stream(ctx)
			if err != nil {
				return nil, err //nolint:wrapcheck // the caller compares it
			}
			defer body.Close()
			return decodeList(body)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch, o.AllowWatchBookmarks = true, true
			body, err := request(o).Stream(ctx)
			if err != nil {
				return nil, err //nolint:wrapcheck // as above
			}
			reporter := apierrors.NewClientErrorReporter(http.StatusInternalServerError, http.MethodGet, "ClientWatchDecoding")
			return watch.NewStreamWatcher(newEvents(body), reporter), nil
		},
	}
}
