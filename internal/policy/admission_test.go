// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package policy

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// Admission compares an existing object with policies when one of the fields changes that it reads of a program.
func TestAdmissionNoticesChangesOfWhatItReads(t *testing.T) {
	text, err := os.ReadFile("../../config/admission/bytecodepolicies/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, changed, _ := strings.Cut(string(text), "- name: changed")
	changed, rest, _ := strings.Cut(changed, "variables:")
	_, members, found := strings.Cut(rest, "- name: programs")
	members, _, _ = strings.Cut(members, "- name: wandering")
	fields := regexp.MustCompile(`m\.fields\.\??([a-z_]+)`).FindAllStringSubmatch(members, -1)
	if !found || len(fields) == 0 {
		t.Fatal("the policy's variable programs reads no fields")
	}
	for _, field := range fields {
		if name := field[1]; name != "bpffunctionname" && !strings.Contains(changed, `"`+name+`"`) {
			t.Errorf("a change of %s isn't checked", name) // bpffunctionname is only in messages
		}
	}
}
