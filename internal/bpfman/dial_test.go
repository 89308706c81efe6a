// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bpfman

import (
	"strings"
	"testing"
)

func TestDialRefusesNoSocket(t *testing.T) {
	if _, err := Dial("\x00%zz"); err == nil || !strings.Contains(err.Error(), "dial daemon at") {
		t.Errorf("error: %v", err)
	}
}
