// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"encoding/json"
	"testing"

	"golang.org/x/sys/unix"
)

func TestAdapt(t *testing.T) {
	const asked = `{"args":["init"],"capabilities":{"bounding":["CAP_CHOWN","CAP_SYS_RESOURCE","CAP_BPF","CAP_OF_LATER"]},"oomScoreAdj":-999,"rlimits":[{"hard":1,"soft":1,"type":"RLIMIT_NOFILE"}]}`
	all := uint64(1)<<(unix.CAP_LAST_CAP+1) - 1
	for name, c := range map[string]struct {
		granted uint64
		want    string
	}{
		"all but a capability that isn't known": {
			all,
			`{"args":["init"],"capabilities":{"bounding":["CAP_CHOWN","CAP_SYS_RESOURCE","CAP_BPF"]},"oomScoreAdj":-999,"rlimits":[{"hard":1,"soft":1,"type":"RLIMIT_NOFILE"}]}`,
		},
		"no CAP_SYS_RESOURCE": {
			all &^ (1 << unix.CAP_SYS_RESOURCE),
			`{"args":["init"],"capabilities":{"bounding":["CAP_CHOWN","CAP_BPF"]}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var process map[string]any
			if err := json.Unmarshal([]byte(asked), &process); err != nil {
				t.Fatal(err)
			}
			adapt(process, c.granted)
			if got, err := json.Marshal(process); err != nil || string(got) != c.want {
				t.Errorf("%s, %v, want %s", got, err, c.want)
			}
		})
	}
}
