// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package inspect

import (
	"errors"
	"strings"
	"testing"
)

// What containers cause, in any number, doesn't hide what else couldn't be read.
func TestLongFailuresLeaveRoomForOthers(t *testing.T) {
	failures := map[string]error{
		"network": nil, "pins": errors.New(strings.Repeat("/container/fs: more than 2048 files\n", 1000)), "pods": errors.New("the runtime is away"),
		"processes": errors.New("the file descriptors of 7 processes aren't visible"),
	}
	message := inspected(failures).Message
	for _, part := range []string{"pins: /container/fs: more than 2048 files; /container", "; pods: the runtime is away; processes: the file descriptors of 7 processes"} {
		if !strings.Contains(message, part) {
			t.Errorf("%q isn't in %s", part, message)
		}
	}
	if len(message) > maxMessage {
		t.Errorf("%d bytes", len(message))
	}
}
