// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package variable

import (
	"fmt"
	"slices"

	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/internal/reader"
)

// CheckBytes compares the sizes of variables with those of the bytes that an object sets (globaldata). The error says how to
// write the value in globals instead. Variables that aren't known are left to the loader, which also finds static ones.
func CheckBytes(data map[string][]byte, variables []reader.Variable, order Order) error {
	var errs []error
	for _, v := range variables {
		content, set := data[v.Name]
		if !set || uint64(len(content)) == uint64(v.Size) {
			continue
		}
		err := problem.Errorf(problem.GlobalDataSize, "globaldata.%s has %s, and the variable has %s", v.Name, count(len(content)), count(int(v.Size)))
		if v.Type != nil && hasValues(*v.Type, v.Size) {
			err = fmt.Errorf("%w (%s): to set a value instead of bytes, write globals: {%s: %s}", err, v.Type.Name, v.Name, meant(content, v, order))
		}
		errs = append(errs, err)
	}
	return join(errs)
}

func count(size int) string {
	if size == 1 {
		return "1 byte"
	}
	return fmt.Sprintf("%d bytes", size)
}

// mostMeant is the size of the largest array whose value is in a message, in bytes. A message isn't the place for more, and
// bytecode can declare many large ones.
const mostMeant = 256

// meant returns the value that somebody probably meant with bytes of another size than the variable's.
func meant(content []byte, v reader.Variable, order Order) string {
	e := element{v.Type.Name, *v.Type}
	if len(v.Type.Lengths) > 0 {
		if len(content) > int(v.Size) || v.Size > mostMeant {
			return "[…]"
		}
		return decode(pad(slices.Clone(content), int(v.Size)), e, order)
	}
	// The bytes of a smaller number have to be at the end with the lowest ones.
	shorter := slices.Clone(content[:min(len(content), int(v.Size))])
	if order.Uint16([]byte{0, 1}) == 1 {
		shorter = slices.Concat(make([]byte, int(v.Size)-len(shorter)), shorter)
	}
	return decode(pad(shorter, int(v.Size)), e, order)
}
