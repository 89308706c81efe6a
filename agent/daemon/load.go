// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package daemon

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/problem"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// maxGlobals is the limit for the global data in the daemon's list, in bytes. A list above
// MaxDaemonResponse can't be read, so nothing could be loaded or unloaded anymore. The other
// half is for programs that are being replaced, and for everything else in the list.
const maxGlobals = v1alpha1.MaxDaemonResponse / 2

// maxGlobalsOfNamespace is the limit for the objects of one namespace, so that they leave space for those of others.
const maxGlobalsOfNamespace = maxGlobals / 4

// Load loads an owner's functions in one call. Errors contain the image reference
// in the user's object, although the daemon gets the image's object as a file.
func (i *Inventory) Load(ctx context.Context, request *gobpfman.LoadRequest) error {
	names := make([]string, 0, len(request.GetInfo()))
	for _, f := range request.GetInfo() {
		names = append(names, f.GetName())
	}
	op := fmt.Sprintf("load %s from %s", list(names), source(request))
	return do(ctx, i, op, loadDeadline, func(ctx context.Context, d dialect) (*gobpfman.LoadResponse, error) {
		if err := i.fits(request); err != nil {
			return nil, err
		}
		allowance := i.allowances.of(request.GetMetadata()[v1alpha1.MetadataNamespace])
		if err := allowance.admitLoad(); err != nil {
			return nil, err
		}
		defer allowance.meterLoad(i.root)()
		response, err := d.load(ctx, i.rpc, request)
		if err != nil {
			return response, i.loadFailure(d, request, err)
		}
		i.recordLoaded(ctx, response)
		return response, nil
	}, func(r *gobpfman.LoadResponse) {
		for _, loaded := range r.GetPrograms() {
			if p, ours := i.programOf(loaded.GetInfo(), loaded.GetKernelInfo()); ours {
				i.programs[p.ID] = p
			}
			if loaded.GetInfo().MapOwnerId != nil {
				i.share(loaded.GetInfo().GetMapUsedBy())
			}
		}
	})
}

// fits refuses a Load after which the daemon's list would be too large. It returns the
// status of a call that the daemon refuses.
func (i *Inventory) fits(request *gobpfman.LoadRequest) error {
	globals := size(request.GetGlobalData())
	if globals == 0 {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	all := globals * len(request.GetInfo())
	own := all
	namespace := request.GetMetadata()[v1alpha1.MetadataNamespace]
	for _, p := range i.programs {
		if p.OwnerUID == request.GetMetadata()[v1alpha1.MetadataUUID] {
			continue // it is replaced
		}
		all += p.Globals
		if p.Owner.Namespace == namespace {
			own += p.Globals
		}
	}
	excess := func(what string, bytes, limit int) error {
		return refuse(problem.GlobalDataTooLarge, codes.Aborted, "%s %d bytes, because the daemon lists %d bytes for each of the object's %d functions; the limit is %d: "+
			"make globaldata smaller", what, bytes, globals, len(request.GetInfo()), limit)
	}
	switch {
	case all > maxGlobals:
		return excess("the global data of all objects on this node would take", all, maxGlobals)
	case namespace != "" && own > maxGlobalsOfNamespace:
		return excess("the global data of the namespace on this node would take", own, maxGlobalsOfNamespace)
	}
	return nil
}

// size returns the size of global data, in bytes.
func size(globals map[string][]byte) int {
	n := 0
	for name, value := range globals {
		n += len(name) + len(value)
	}
	return n
}
