// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package live

import (
	"io"
	"strings"

	"github.com/bpfman/bpfman-operator/internal/live"
	"github.com/bpfman/bpfman-operator/internal/verifierlog"
)

// maxPart is the maximum number of bytes of a log in a line.
const maxPart = 64 << 10

// Log writes what the kernel's verifier said about an object, as far as the agent has stored it.
func Log(store verifierlog.Store, owner verifierlog.Owner, out io.Writer) error {
	texts, err := store.Read(owner)
	if err != nil {
		return err
	}
	answers := linesTo(out)
	for _, text := range texts {
		text = strings.ToValidUTF8(text, "\uFFFD")
		for end := false; !end; {
			part := text[:min(maxPart, len(text))]
			if end = len(part) == len(text); !end {
				part = strings.ToValidUTF8(part, "") // the last character can be cut
			}
			text = text[len(part):]
			if err := answers.write(live.LogLine{Text: part, End: end}); err != nil {
				return err
			}
		}
	}
	return answers.flush()
}
