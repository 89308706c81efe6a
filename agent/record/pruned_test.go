// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package record

import (
	"encoding/json"
	"net/http"
	"strconv"
	"testing"

	"github.com/bpfman/bpfman-operator/agent/plan"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/agent/report"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// With definitions that are older than the agent, the API server drops fields. The agent doesn't write them again and again,
// and a write that changes nothing isn't a change for others.
func TestDroppedFields(t *testing.T) {
	owner, _ := members(1)
	owner.Kind = "ClusterBpfApplication"
	want := plan.Want(owner, program.Node{}, nil)
	var stored v1alpha1.BpfProgram
	writes, version := 0, 0
	r := reportsTo(t, func(request *http.Request) (*http.Response, error) {
		var sent v1alpha1.BpfProgram
		if err := json.NewDecoder(request.Body).Decode(&sent); err != nil {
			t.Error(err)
		}
		status := stored.Status
		if request.Method == http.MethodPut {
			writes++
			status = sent.Status
		}
		sent.Status = status
		sent.Spec.Type, sent.Status.ProgramType = "", ""
		sent.ResourceVersion = stored.ResourceVersion
		if before, after := text(t, stored), text(t, sent); before != after {
			version++
			sent.UID, sent.ResourceVersion = "u", strconv.Itoa(version)
		}
		stored = sent
		return answering(request, http.StatusOK, text(t, stored))
	})
	changes := 0
	r.Changed = func() { changes++ }
	write := func(writesWanted, changesWanted int) {
		t.Helper()
		if err := r.Write(t.Context(), owner.Key, &owner, want, nil, report.Outcome{}); err != nil {
			t.Error(err)
		}
		if writes != writesWanted || changes != changesWanted {
			t.Errorf("%d writes, %d changes, want %d, %d", writes, changes, writesWanted, changesWanted)
		}
	}
	write(1, 2) // it is created, and gets its status
	write(1, 2)
	recorded := r.Recorded(owner.Key)[stored.Name]
	if recorded == nil || recorded.GetResourceVersion() != "2" || recorded.GetStatus().ProgramType != "tracepoint" || recorded.GetSpec().Type == "" {
		t.Errorf("recorded %+v", recorded)
	}
	// What is listed lacks the fields again, which costs one write of the content, and one of the status.
	r.known.put(owner.Key, stored.DeepCopy(), r.known.begin())
	write(3, 2)
	write(3, 2)
}

func text(t *testing.T, o any) string {
	t.Helper()
	encoded, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(encoded)
}
