// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	restfake "k8s.io/client-go/rest/fake"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/cluster"
)

// clusterOf connects to a cluster with some objects. The namespace is "team".
func clusterOf(objects ...client.Object) cluster.Connect {
	reader := fake.NewClientBuilder().WithScheme(cluster.Scheme()).WithObjects(objects...).Build()
	api := &restfake.RESTClient{
		GroupVersion: v1alpha1.SchemeGroupVersion, NegotiatedSerializer: scheme.Codecs.WithoutConversion(),
		Client: restfake.CreateHTTPClient(func(r *http.Request) (*http.Response, error) {
			list := v1alpha1.BpfNodeList{Items: []v1alpha1.BpfNode{}}
			if err := reader.List(r.Context(), &list); err != nil {
				return nil, err
			}
			body, err := json.Marshal(list)
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(body))}, err
		}),
	}
	return func() (*cluster.Cluster, error) {
		return &cluster.Cluster{Reader: reader, Writer: reader, API: api, Namespace: "team"}, nil
	}
}

func named(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

// reportWithMaps returns a report of a TcxProgram.
func reportWithMaps(name, owner string, maps ...string) *v1alpha1.BpfProgram {
	report := &v1alpha1.BpfProgram{ObjectMeta: named("", name)}
	report.Labels = map[string]string{v1alpha1.LabelOwnedByProgram: owner, v1alpha1.LabelOwnerKind: "TcxProgram"}
	report.Spec.Maps, report.Status.Node = map[string]string{}, name
	for _, m := range maps {
		report.Spec.Maps[m] = "/" + name + "/" + m
	}
	return report
}

func TestCompletion(t *testing.T) {
	connect := clusterOf(
		&v1alpha1.TcxProgram{ObjectMeta: named("", "counter")}, &v1alpha1.TcxProgram{ObjectMeta: named("", "filter")},
		&v1alpha1.TcxNsProgram{ObjectMeta: named("team", "ours")}, &v1alpha1.TcxNsProgram{ObjectMeta: named("other", "theirs")},
		&corev1.Node{ObjectMeta: named("", "one")}, &corev1.Node{ObjectMeta: named("", "two")},
		&corev1.Namespace{ObjectMeta: named("", "team")},
		reportWithMaps("filter-one", "filter", "blocked", "stats"), reportWithMaps("filter-two", "filter", "stats"),
	)
	none := func() (*cluster.Cluster, error) { return nil, errors.New("no cluster") }
	const noFiles = cobra.ShellCompDirectiveNoFileComp
	var kinds []string
	for _, kind := range v1alpha1.UserKinds {
		kinds = append(kinds, strings.ToLower(kind.Name)+"/")
	}
	for name, c := range map[string]struct {
		complete   cobra.CompletionFunc
		args       []string
		typed      string
		want       string
		directives cobra.ShellCompDirective
	}{
		"kinds":               {completeUserObject(none), nil, "tcx", strings.Join(kinds, " "), noFiles | cobra.ShellCompDirectiveNoSpace},
		"names":               {completeUserObject(connect), nil, "tcxprog/c", "tcxprog/counter tcxprog/filter", noFiles},
		"names of a space":    {completeUserObject(connect), nil, "tcxnsprogram/", "tcxnsprogram/ours", noFiles},
		"no such kind":        {completeUserObject(connect), nil, "pod/", "", noFiles},
		"no cluster":          {completeUserObject(none), nil, "tcxprog/", "", cobra.ShellCompDirectiveError},
		"nothing after a one": {completeUserObject(connect), []string{"tcxprog/counter"}, "", "", noFiles},
		"maps":                {completeMap(connect), []string{"tcxprog/filter"}, "", "blocked stats", noFiles},
		"an object with maps": {completeMap(connect), nil, "tcxprog/f", "tcxprog/counter tcxprog/filter", noFiles},
		"maps of no kind":     {completeMap(connect), []string{"pod/x"}, "", "", cobra.ShellCompDirectiveError},
		"namespaces":          {completeNamespace(connect), nil, "", "team", noFiles},
		"nodes":               {completeNode(connect), nil, "", "one two", noFiles},
	} {
		t.Run(name, func(t *testing.T) {
			command := &cobra.Command{}
			command.SetContext(t.Context())
			got, directives := c.complete(command, c.args, c.typed)
			if all := strings.Join(got, " "); all != c.want || directives != c.directives {
				t.Errorf("got %q and %d, want %q and %d", all, directives, c.want, c.directives)
			}
		})
	}
}
