// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package load

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-logr/logr"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/shorten"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/verifierlog"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// maxFailing is the maximum number of functions that are named.
const maxFailing = 3

// request has the daemon load functions of an owner.
func (l *Loader) request(ctx context.Context, owner program.Key, request *gobpfman.LoadRequest) error {
	err := namingFailed(request, l.Inventory.Load(ctx, request))
	if failed := l.keepLog(owner, request, err); failed != nil {
		logr.FromContextOrDiscard(ctx).Error(failed, "Failed to keep the verifier's log; kubectl bpfman why --log shows none", "kind", owner.Kind, "namespace", owner.Namespace, "name", owner.Name)
	}
	return shortened(err)
}

// keptFrom is the length from which on refusals are kept. Shorter ones fit into a condition, even with what is added there.
const keptFrom = maxFailure / 2

// keepLog stores the refusal of a Load if it is long, and otherwise removes what is stored about the Load.
func (l *Loader) keepLog(owner program.Key, request *gobpfman.LoadRequest, err error) error {
	load, of := request.GetMetadata()[v1alpha1.MetadataLoad], verifierlog.Owner{Kind: owner.Kind, Namespace: owner.Namespace, Name: owner.Name}
	refused := (*daemon.Error)(nil)
	if errors.As(err, &refused) && refused.Refused() {
		if text := err.Error(); len(text) >= keptFrom {
			return l.Logs.Put(of, load, text)
		}
	}
	return l.Logs.Remove(of, load)
}

// maxFailure is the maximum length of a refusal in bytes. The log of the kernel's verifier can have megabytes, the refusals of many
// Loads are kept, and each node's report has one. The beginning and the end say why, and the whole log is on the node.
const maxFailure = 8 << 10

// shortened returns the error of a Load with at most maxFailure bytes of the daemon's refusal.
func shortened(err error) error {
	refused := (*daemon.Error)(nil)
	if !errors.As(err, &refused) || !refused.Refused() {
		return err
	}
	is := status.Convert(refused.Cause)
	if len(is.Message()) <= maxFailure {
		return err
	}
	return &daemon.Error{Op: refused.Op, Cause: status.Error(is.Code(), shorten.Middle(is.Message(), maxFailure)), Took: refused.Took}
}

// namingFailed has the error of a Load of several functions begin with those that failed. The daemon of v0.6.0 doesn't name
// them: only the log does, in the middle, where long messages are shortened.
func namingFailed(request *gobpfman.LoadRequest, err error) error {
	refused := (*daemon.Error)(nil)
	if len(request.GetInfo()) < 2 || !errors.As(err, &refused) {
		return err
	}
	asked := sets.New[string]()
	for _, f := range request.GetInfo() {
		asked.Insert(f.GetName())
	}
	failing := refused.Failing(asked)
	_, source, found := strings.Cut(refused.Op, " from ")
	if len(failing) == 0 || !found {
		return err
	}
	verb := "fails"
	if len(failing) > 1 {
		verb = "fail"
	}
	names := strings.Join(failing[:min(len(failing), maxFailing)], ", ")
	if more := len(failing) - maxFailing; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return &daemon.Error{Op: fmt.Sprintf("load %d functions, of which %s %s, from %s", len(request.GetInfo()), names, verb, source), Cause: refused.Cause, Took: refused.Took}
}
