// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package load

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bpfman/bpfman-operator/agent/bytecode"
	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/gate"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/nearest"
	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/internal/reader"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// locate has a request load the object of the owner's image. What the daemon loads is what was verified: a file that the
// reader has written.
func locate(request *gobpfman.LoadRequest, owner program.Owner, found bytecode.Bytecode) error {
	if err := missing(request, found); err != nil {
		return err
	}
	request.Bytecode = &gobpfman.BytecodeLocation{Location: &gobpfman.BytecodeLocation_File{File: found.Path}}
	request.Metadata[v1alpha1.MetadataImage] = owner.Bytecode.Image.Url
	request.Metadata[v1alpha1.MetadataDigest] = found.Digest
	request.Metadata[v1alpha1.MetadataManifest] = found.Manifest
	for _, f := range found.Object.Functions {
		setActualType(request, f)
	}
	return nil
}

// setActualType says in a request whether a function is a return probe: its section decides, and not the user's object.
func setActualType(request *gobpfman.LoadRequest, f reader.Function) {
	key := v1alpha1.MetadataActualType + f.Name
	delete(request.GetMetadata(), key)
	if !slices.ContainsFunc(request.GetInfo(), func(info *gobpfman.LoadInfo) bool { return info.GetName() == f.Name }) {
		return
	}
	switch {
	case strings.HasPrefix(f.Section, "kretprobe"), strings.HasPrefix(f.Section, "kretsyscall"):
		request.Metadata[key] = "kretprobe"
	case strings.HasPrefix(f.Section, "uretprobe"):
		request.Metadata[key] = "uretprobe"
	}
}

// Keep reads the images of an owner's programs into the store, if an earlier version of
// bpfman loaded them without it. After a reboot, they are then loaded without a registry.
func (l *Loader) Keep(ctx context.Context, owner program.Owner, g *gate.Gate) {
	if owner.Bytecode.Image == nil {
		return
	}
	for _, p := range l.Inventory.Of(owner.Key) {
		if _, kept := l.stored.Get(p.Image); kept || p.Image.Digest == "" || p.Image.Reference != owner.Bytecode.Image.Url {
			continue
		}
		found, err := l.Bytecode.Find(ctx, bytecode.Question{
			Owner: owner.Key, Image: p.Image, PullPolicy: owner.Bytecode.Image.ImagePullPolicy, Credentials: g.Credentials, Object: true,
		}, nil)
		if err == nil && found.Path != "" {
			l.stored.Add(p.Image, nil)
		}
	}
}

// missing returns an error if the object is known to lack a function, or if the function can't
// be loaded on this node. The daemon would store the object before it notices.
func missing(request *gobpfman.LoadRequest, found bytecode.Bytecode) error {
	var lacking, unusable, have []string
	functions, unusableFor := map[string]reader.Function{}, problem.Reason("")
	for _, f := range found.Object.Functions {
		have = append(have, f.Name)
		functions[f.Name] = f
	}
	for _, f := range request.GetInfo() {
		function, known := functions[f.GetName()]
		switch {
		case !known:
			lacking = append(lacking, f.GetName())
		case function.Unusable != "":
			if len(unusable) == 0 {
				unusableFor = function.Problem
			}
			unusable = append(unusable, fmt.Sprintf("function %s can't be loaded: %s", f.GetName(), function.Unusable))
		}
	}
	switch {
	case len(have) == 0:
		return nil
	case len(lacking) > 0:
		meant := ""
		if name := nearest.Name(lacking[0], slices.Values(have)); name != "" {
			meant = " (did you mean " + name + "?)"
		}
		return problem.Errorf(problem.NoSuchFunction, "the bytecode has no function %s%s; its functions are %s, when loading from image %s", strings.Join(lacking, ", "), meant, some(have, mostNames), found.Reference)
	case len(unusable) > 0:
		return problem.Errorf(unusableFor, "%s, when loading from image %s", strings.Join(unusable, "; "), found.Reference)
	}
	return nil
}

// nameSections adds the sections of a request's functions to the refusal of a Load because of one that is of another type.
func nameSections(err error, request *gobpfman.LoadRequest, found bytecode.Bytecode) error {
	refused := (*daemon.Error)(nil)
	if !errors.As(err, &refused) || !refused.OtherType() {
		return err
	}
	var sections []string
	for _, f := range found.Object.Functions {
		if slices.ContainsFunc(request.GetInfo(), func(info *gobpfman.LoadInfo) bool { return info.GetName() == f.Name }) {
			sections = append(sections, fmt.Sprintf("%s is in section %s", f.Name, f.Section))
		}
	}
	if len(sections) == 0 {
		return err
	}
	return fmt.Errorf("%w; %s", err, some(sections, mostNames))
}

// mostNames is how many names of functions an error contains.
const mostNames = 20

// some joins at most so many names.
func some(names []string, most int) string {
	if len(names) > most {
		return fmt.Sprintf("%s, and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
