// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package reports

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/kinds"
	"github.com/bpfman/bpfman-operator/internal/liststream"
)

// TestWay fills a store from a cluster in one of the ways that the API supports, and prints the cost. make
// bench-scale runs it, in a separate process for each way.
func TestWay(t *testing.T) {
	name := os.Getenv("BPFMAN_TEST_WAY")
	if name == "" {
		t.Skip("BPFMAN_TEST_WAY names no way")
	}
	ways := map[string]func(context.Context, *part, rest.Interface, runtime.ParameterCodec) error{
		"list": inOneList, "pages": inPages, "stream": asEvents,
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	must(t, err)
	config.QPS = -1
	scheme := runtime.NewScheme()
	must(t, v1alpha1.Install(scheme))
	api, err := kinds.NewClient(config, scheme)
	must(t, err)
	p := clusterScoped(NewStore(&kinds.Kinds{}, v1alpha1.StateKinds))
	start := time.Now()
	must(t, ways[name](t.Context(), p, api, runtime.NewParameterCodec(scheme)))
	took := time.Since(start)
	status, err := os.ReadFile("/proc/self/status")
	must(t, err)
	var peak int
	for line := range strings.Lines(string(status)) {
		_, _ = fmt.Sscanf(line, "VmHWM: %d kB", &peak)
	}
	fmt.Printf("%d reports in %.2f s with %d KiB\n", len(p.byUID), took.Seconds(), peak)
}

func (p *part) replace(read []runtime.Object) error {
	items := make([]any, len(read))
	for i, o := range read {
		items[i] = o
	}
	return p.Replace(items, "")
}

func inOneList(ctx context.Context, p *part, api rest.Interface, codec runtime.ParameterCodec) error {
	answer, err := liststream.New(api, p.kind.Resource(), codec, decode).ListWithContextFunc(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	all, ok := answer.(*liststream.List)
	if !ok {
		return fmt.Errorf("%T is no list", answer)
	}
	return p.replace(all.Items)
}

func inPages(ctx context.Context, p *part, api rest.Interface, codec runtime.ParameterCodec) error {
	var all []runtime.Object
	for options := (metav1.ListOptions{Limit: 500}); ; {
		body, err := api.Get().Resource(p.kind.Resource()).VersionedParams(&options, codec).SetHeader("Accept-Encoding", "identity").Stream(ctx)
		if err != nil {
			return fmt.Errorf("get a page: %w", err)
		}
		page, err := liststream.DecodeList(body, decode)
		if err := errors.Join(err, body.Close()); err != nil {
			return err
		}
		all = slices.Concat(all, page.Items)
		if options.Continue = page.Continue; options.Continue == "" {
			return p.replace(all)
		}
	}
}

// asEvents is the way that the store uses.
func asEvents(ctx context.Context, p *part, api rest.Interface, codec runtime.ParameterCodec) error {
	from, err := liststream.New(api, p.kind.Resource(), codec, decode).WatchFuncWithContext(ctx, metav1.ListOptions{
		SendInitialEvents: new(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	defer from.Stop()
	var all []runtime.Object
	for event := range from.ResultChan() {
		o, ok := event.Object.(metav1.Object)
		switch {
		case event.Type == watch.Bookmark && ok && o.GetAnnotations() != nil:
			return p.replace(all)
		case event.Type == watch.Added && ok:
			all = append(all, event.Object)
		default:
			return fmt.Errorf("%s of %v", event.Type, event.Object)
		}
	}
	return errors.New("the watch ended")
}
