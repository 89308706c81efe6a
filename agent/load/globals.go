// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package load

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/bpfman/bpfman-operator/agent/bytecode"
	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/nearest"
	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/internal/reader"
	"github.com/bpfman/bpfman-operator/internal/variable"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// How many variables, and functions of each, a report names.
const (
	mostUnshared = 3
	mostUsers    = 4
)

// setGlobals converts the values of the owner's globals by the types of the bytecode's variables, and adds them to a
// request. It checks the sizes of what the owner sets as bytes: the daemon would store the object before it notices.
func setGlobals(request *gobpfman.LoadRequest, owner program.Owner, found bytecode.Bytecode) error {
	if len(owner.Globals)+len(owner.GlobalData) == 0 {
		return nil
	}
	err := variable.CheckBytes(owner.GlobalData, found.Object.Variables, binary.NativeEndian)
	if err == nil && len(owner.Globals) > 0 {
		err = addGlobals(request, owner, found)
	}
	if err != nil {
		return fmt.Errorf("%w, when loading from image %s", err, found.Reference)
	}
	return nil
}

func addGlobals(request *gobpfman.LoadRequest, owner program.Owner, found bytecode.Bytecode) error {
	if found.Object.Unknown != "" {
		return problem.Errorf(problem.GlobalWithoutValues, "globals can't be set, because the bytecode's variables can't be read: %s", found.Object.Unknown)
	}
	for _, name := range slices.Sorted(maps.Keys(owner.Globals)) {
		if _, twice := owner.GlobalData[name]; twice {
			return problem.Errorf(problem.GlobalSetTwice, "globals.%s: globaldata sets this variable too: remove one of both", name)
		}
	}
	encoded, err := variable.Encode(owner.Globals, found.Object.Variables, binary.NativeEndian)
	if err != nil {
		return err
	}
	request.GlobalData = maps.Clone(owner.GlobalData)
	if request.GlobalData == nil {
		request.GlobalData = map[string][]byte{}
	}
	maps.Copy(request.GlobalData, encoded)
	return nil
}

// noteUnshared says in a request which variables several of its functions use. The daemon keeps it, and so the reports of the
// programs can say it for as long as they are loaded.
func noteUnshared(request *gobpfman.LoadRequest, shared []reader.SharedVariable) {
	var names []string
	for _, v := range shared {
		users := slices.DeleteFunc(slices.Clone(v.Functions), func(name string) bool {
			return !slices.ContainsFunc(request.GetInfo(), func(f *gobpfman.LoadInfo) bool { return f.GetName() == name })
		})
		if len(users) > 1 {
			names = append(names, fmt.Sprintf("%s (%s)", v.Name, some(users, mostUsers)))
		}
	}
	if len(names) > 0 {
		request.Metadata[v1alpha1.MetadataUnshared] = some(names, mostUnshared)
	}
}

// suggestVariable adds the nearest name to the refusal of a Load that sets a variable that the bytecode doesn't have.
func suggestVariable(err error, found bytecode.Bytecode) error {
	refused := (*daemon.Error)(nil)
	if !errors.As(err, &refused) {
		return err
	}
	unknown := refused.UnknownVariable()
	if unknown == "" {
		return err
	}
	meant := nearest.Question(unknown, func(yield func(string) bool) {
		for _, v := range found.Object.Variables {
			if !yield(v.Name) {
				return
			}
		}
	})
	if meant == "" {
		return err
	}
	return fmt.Errorf("%w%s", err, meant)
}
