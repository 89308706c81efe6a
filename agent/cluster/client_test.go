// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package cluster

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// After a write, a report has the content of the API server's response. The API server
// ignores the status when a report is created.
func TestReportsAreWritten(t *testing.T) {
	var asked, body string
	c := newCluster(t, func(request *http.Request) (*http.Response, error) {
		content, err := io.ReadAll(request.Body)
		asked, body = request.Method+" "+request.URL.Path, string(content)
		return answer(request, http.StatusOK, `{"apiVersion":"bpfman.io/v1alpha1","kind":"BpfNsProgram","metadata":{"namespace":"a","name":"x","uid":"u","resourceVersion":"7"}}`), err
	})
	report := func() v1alpha1.ProgramObject {
		o := &v1alpha1.BpfNsProgram{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "x", UID: "u"}}
		o.Status.Node = "node"
		return o
	}
	clusterScoped := &v1alpha1.BpfProgram{ObjectMeta: metav1.ObjectMeta{Name: "x"}}
	for _, test := range []struct {
		write func(o v1alpha1.ProgramObject) error
		asked string
		sent  string // part of the body
	}{
		{func(o v1alpha1.ProgramObject) error { return c.CreateReport(t.Context(), o) }, "POST /apis/bpfman.io/v1alpha1/namespaces/a/bpfnsprograms", `"kind":"BpfNsProgram","apiVersion":"bpfman.io/v1alpha1"`},
		{func(o v1alpha1.ProgramObject) error { return c.UpdateReport(t.Context(), o) }, "PUT /apis/bpfman.io/v1alpha1/namespaces/a/bpfnsprograms/x", `"node":"node"`},
		{func(o v1alpha1.ProgramObject) error { return c.UpdateReportStatus(t.Context(), o) }, "PUT /apis/bpfman.io/v1alpha1/namespaces/a/bpfnsprograms/x/status", `"node":"node"`},
		{func(o v1alpha1.ProgramObject) error { return c.DeleteReport(t.Context(), o) }, "DELETE /apis/bpfman.io/v1alpha1/namespaces/a/bpfnsprograms/x", `"preconditions":{"uid":"u"}`},
		{func(v1alpha1.ProgramObject) error { return c.DeleteReport(t.Context(), clusterScoped) }, "DELETE /apis/bpfman.io/v1alpha1/bpfprograms/x", ""},
	} {
		o := report()
		if err := test.write(o); err != nil || asked != test.asked || !strings.Contains(body, test.sent) {
			t.Errorf("%s, %v: it sent %s", asked, err, body)
		}
		if strings.HasPrefix(asked, "DELETE") {
			continue
		}
		if o.GetResourceVersion() != "7" || o.GetStatus().Node != "" {
			t.Errorf("%s: it became %+v", asked, o)
		}
	}
}

// A report that couldn't be written is unchanged: a retry needs its name.
func TestReportsThatCannotBeWritten(t *testing.T) {
	c := newCluster(t, func(request *http.Request) (*http.Response, error) {
		return answer(request, http.StatusConflict, fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":409}`, metav1.StatusReasonConflict)), nil
	})
	o := &v1alpha1.BpfProgram{ObjectMeta: metav1.ObjectMeta{Name: "x"}}
	if err := c.UpdateReport(t.Context(), o); !apierrors.IsConflict(err) || o.Name != "x" {
		t.Errorf("%v, and it is %+v", err, o)
	}
}
