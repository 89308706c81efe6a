// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package load

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/apis/shorten"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// firstLine matches the first line of source in each log of the kernel's verifier. It is the one that declares the function,
// unless the compiler left that out because the function is short.
var firstLine = regexp.MustCompile(`verifier_log: (?:[^;\n][^\n]*\n)*; ([^\n]*)`)

// identifier matches the names in a line of source.
var identifier = regexp.MustCompile(`\w+`)

// maxFailing is the maximum number of functions that are named.
const maxFailing = 3

// request has the daemon load functions.
func (l *Loader) request(ctx context.Context, request *gobpfman.LoadRequest) error {
	return shortened(namingFailed(request, l.Inventory.Load(ctx, request)))
}

// maxFailure is the maximum length of a refusal in bytes. It is that of a condition, which shows no more of it. The log of the
// kernel's verifier can have megabytes, and the refusals of many Loads are kept.
const maxFailure = 32 << 10

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
	if len(request.GetInfo()) < 2 || !errors.As(err, &refused) || !refused.Refused() {
		return err
	}
	failing := failed(request, status.Convert(refused.Cause).Message())
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

// failed returns the functions of a request that the logs in a message are about. Both can be large, and the logs contain lines
// that the bytecode's author chose, so the time doesn't grow with the product of functions and lines.
func failed(request *gobpfman.LoadRequest, message string) []string {
	asked := sets.New[string]()
	for _, f := range request.GetInfo() {
		asked.Insert(f.GetName())
	}
	var failing []string
	for _, match := range firstLine.FindAllStringSubmatch(message, -1) {
		for _, name := range identifier.FindAllString(match[1], -1) {
			if asked.Has(name) {
				asked.Delete(name)
				failing = append(failing, name)
			}
		}
	}
	return failing
}
