// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package inventory

import (
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/userobject"
)

// SettingsOf returns the settings in an object of bpfman for its program with a function. For an
// application with several members, these are the settings of the member with that function. If
// object is nil, the settings are empty.
func SettingsOf(object v1alpha1.UserObject, function string) Settings {
	programs := userobject.Programs(object)
	for _, p := range programs {
		info := p.Info()
		if info == nil || len(programs) > 1 && info.Common().BpfFunctionName != function {
			continue
		}
		switch i := info.(type) {
		case *v1alpha1.TcProgramInfo:
			return Settings{Priority: &i.Priority, ProceedOn: texts(i.ProceedOn)}
		case *v1alpha1.TcxProgramInfo:
			return Settings{Priority: &i.Priority}
		case *v1alpha1.XdpProgramInfo:
			return Settings{Priority: &i.Priority, ProceedOn: texts(i.ProceedOn)}
		}
	}
	return Settings{}
}

func texts[T ~string](actions []T) []string {
	var out []string
	for _, a := range actions {
		out = append(out, string(a))
	}
	return out
}
