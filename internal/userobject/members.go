// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package userobject

import (
	"strconv"
	"strings"
)

// MemberID returns the ID of a member of an application that is attached to a symbol, or is loaded for one, in upstream's format
// of an appProgramId.
func MemberID(programType, symbol, function string) string {
	symbol = strings.NewReplacer("/", "-", "_", "-").Replace(strings.TrimPrefix(symbol, "/"))
	return programType + "-" + strings.ToLower(symbol) + "-" + function
}

// MemberIDs makes the IDs of an application's members unique, in the order of the members.
type MemberIDs map[string]int

// Unique returns an ID, with a number starting with 2 if it is repeated.
func (m MemberIDs) Unique(id string) string {
	if m[id]++; m[id] > 1 {
		id += "-" + strconv.Itoa(m[id])
	}
	return id
}
