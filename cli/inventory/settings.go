// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package inventory

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/cluster"
	"github.com/bpfman/bpfman-operator/internal/userobject"
)

// AskedBy returns a function that reads the settings from objects. It reads each object once. If an
// object can't be read, the settings are empty.
func AskedBy(ctx context.Context, from client.Reader) func(v1alpha1.BpfNodeOwner, string) Settings {
	read := map[v1alpha1.BpfNodeOwner]v1alpha1.UserObject{}
	return func(owner v1alpha1.BpfNodeOwner, function string) Settings {
		object, known := read[owner]
		if !known {
			object, _ = cluster.Get(ctx, from, owner) // nil after an error
			read[owner] = object
		}
		return SettingsOf(object, function)
	}
}

// SettingsOf returns the settings in an object of bpfman for its program with a function. For an
// application with several members, these are the settings of the member with that function. If
// object is nil, the settings are empty.
func SettingsOf(object v1alpha1.UserObject, function string) Settings {
	if object == nil {
		return Settings{}
	}
	programs := userobject.Programs(object)
	for _, p := range programs {
		info := p.Info()
		if info == nil || len(programs) > 1 && info.Common().BpfFunctionName != function {
			continue
		}
		if chain := info.Chain(); chain != nil {
			return Settings{Priority: &chain.Priority, ProceedOn: chain.ProceedOn}
		}
	}
	return Settings{}
}
