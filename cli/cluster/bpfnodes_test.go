// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package cluster

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

const listOfBpfNodes = `{"apiVersion":"bpfman.io/v1alpha1","items":[
{"metadata":{"name":"a"},"status":{"programs":[{"id":1,"type":"xdp"},{"id":2,"type":"xdp"}],"maps":[{"id":7,"type":"hash"},{"id":8,"type":"hash"}],"omitted":{"programs":5}}},
{"metadata":{"name":"b"},"status":{"maps":null,"programs":[{"id":3,"type":"xdp"}]}}
],"kind":"BpfNodeList","metadata":{"resourceVersion":"12"}}`

// answering returns a cluster that gives the same response to each request.
func answering(t *testing.T, code int, body string, asked *[]string) *Cluster {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path.Base(r.URL.Path) != v1alpha1.SchemeGroupVersion.Version { // which kinds there are
			*asked = append(*asked, r.URL.Path+" limit "+r.URL.Query().Get("limit"))
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	flags := genericclioptions.NewConfigFlags(false)
	flags.APIServer = &server.URL
	to, err := With(flags)()
	if err != nil {
		t.Fatal(err)
	}
	return to
}

func TestBpfNodes(t *testing.T) {
	var asked, found []string
	err := answering(t, http.StatusOK, listOfBpfNodes, &asked).BpfNodes(t.Context(), nil, func(n *v1alpha1.BpfNode) error {
		found = append(found, fmt.Sprint(n.Name, len(n.Status.Programs), len(n.Status.Maps), n.Status.Omitted != nil))
		return nil
	})
	if want := []string{"a2 0 true", "b1 0 false"}; err != nil || !slices.Equal(found, want) {
		t.Errorf("read %q, %v, want %q", found, err, want)
	}
	if want := []string{"/apis/bpfman.io/v1alpha1/bpfnodes limit "}; !slices.Equal(asked, want) {
		t.Errorf("asked for %q, want %q", asked, want)
	}
}

func TestBpfNodesFail(t *testing.T) {
	const unexpected = "unexpected EOF within"
	forbidden := `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"bpfnodes.bpfman.io is forbidden","reason":"Forbidden","code":403}`
	for name, c := range map[string]struct {
		code       int
		body, want string
	}{
		"forbidden":        {http.StatusForbidden, forbidden, "list BpfNodes: bpfnodes.bpfman.io is forbidden"},
		"nothing":          {http.StatusOK, ``, "list BpfNodes: read a list: EOF"},
		"no list":          {http.StatusOK, `[]`, "read a list: [ at offset 1, not {"},
		"a wrong item":     {http.StatusOK, `{"items":["a"]}`, "decode a BpfNode: "},
		"an end too early": {http.StatusOK, listOfBpfNodes[:strings.Index(listOfBpfNodes, `,"omitted"`)], unexpected},
		"an item missing":  {http.StatusOK, listOfBpfNodes[:strings.Index(listOfBpfNodes, "\n"+`{"metadata":{"name":"b"}`)-1], unexpected},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []string
			err := answering(t, c.code, c.body, &asked).BpfNodes(t.Context(), nil, func(*v1alpha1.BpfNode) error { return nil })
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
	stop := errors.New("enough")
	var asked []string
	if err := answering(t, http.StatusOK, listOfBpfNodes, &asked).BpfNodes(t.Context(), nil, func(*v1alpha1.BpfNode) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("error %v, want the visitor's", err)
	}
}
