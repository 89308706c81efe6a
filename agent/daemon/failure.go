// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package daemon

import (
	"regexp"
	"slices"
	"strings"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// The daemons and the kernel describe the same failure with different texts.
// Retries would then look like new failures, and each would be written and emitted. This
// file normalizes the text where it is read, so that everything else compares for equality.

// noise matches what differs between equal failures and says nothing to users: the
// verifier's time, the number of a task that panicked, kernel addresses, file
// descriptors, and IDs of kernel objects.
var noise = []struct {
	text *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`verification time [0-9]+ usec\n?`), ""},
	{regexp.MustCompile(`task [0-9]+ panicked`), "task panicked"},
	{regexp.MustCompile(`\b(0x)?ffff[0-9a-f]{12}\b`), "(address)"},
	{regexp.MustCompile(`\b(fd|(?:prog|program|map|link|btf)[ _]id)([ =:]+)[0-9]+\b`), "$1$2(number)"},
}

// names matches a list of names, which the daemon lists in random order.
var names = regexp.MustCompile(`\["[^"\[\]]*"(?:, "[^"\[\]]*")+\]`)

// chosen matches the name or address that the daemon chooses at random if several globals, maps,
// or symbols are wrong.
var chosen = regexp.MustCompile(strings.Join([]string{
	`symbol with name .* not found in the symbols table`,
	`global variable ".*" not found in program`,
	`set variable ".*": .*`,
	"symbol .* has size `[0-9]+`, but provided data is of size `[0-9]+`",
	"failed to create map `[^`]*`",
	"symbols? in section `[0-9]+` (have the same|at) address 0x[0-9A-Fa-f]+",
}, "|"))

// quiet returns a message without noise, and with lists of names in order.
func quiet(message string) string {
	for _, n := range noise {
		message = n.text.ReplaceAllString(message, n.with)
	}
	return names.ReplaceAllStringFunc(message, func(list string) string {
		sorted := strings.Split(list[1:len(list)-1], ", ")
		slices.Sort(sorted)
		return "[" + strings.Join(sorted, ", ") + "]"
	})
}

// loadFailure returns the error of a Load. If it only differs from the previous error of
// the same Load of the same image in the name that the daemon chose, it returns the
// previous one.
func (i *Inventory) loadFailure(d dialect, request *gobpfman.LoadRequest, err error) error {
	type load struct{ uuid, id, manifest string }
	err = refusal(d, err)
	if uncertain(err) {
		return err
	}
	key := load{request.GetUuid(), request.GetMetadata()[v1alpha1.MetadataLoad], request.GetMetadata()[v1alpha1.MetadataManifest]}
	if last, found := i.failures.Get(key); found {
		if last, _ := last.(error); chosen.ReplaceAllString(last.Error(), "") == chosen.ReplaceAllString(err.Error(), "") {
			return last
		}
	}
	if len(err.Error()) <= maxKept {
		i.failures.Add(key, err)
	}
	return err
}

// maxKept is the maximum length in bytes of an error that is kept. Longer ones are logs of the kernel's verifier, in which the
// daemon chooses nothing. The objects of one namespace can have as many of them as are kept.
const maxKept = 32 << 10
