// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package load

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/grpc/status"

	"github.com/bpfman/bpfman-operator/agent/daemon"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// firstLine matches the first line of source in each log of the kernel's verifier. It is the one that declares the function,
// unless the compiler left that out because the function is short.
var firstLine = regexp.MustCompile(`verifier_log: (?:[^;\n][^\n]*\n)*; ([^\n]*)`)

// maxFailing is the maximum number of functions that are named.
const maxFailing = 3

// request has the daemon load functions.
func (l *Loader) request(ctx context.Context, request *gobpfman.LoadRequest) error {
	return namingFailed(request, l.Inventory.Load(ctx, request))
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

// failed returns the functions of a request that the logs in a message are about.
func failed(request *gobpfman.LoadRequest, message string) []string {
	var failing []string
	for _, match := range firstLine.FindAllStringSubmatch(message, -1) {
		for _, f := range request.GetInfo() {
			named := regexp.MustCompile(`\b` + regexp.QuoteMeta(f.GetName()) + `\b`)
			if !slices.Contains(failing, f.GetName()) && named.MatchString(match[1]) {
				failing = append(failing, f.GetName())
			}
		}
	}
	return failing
}
