// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package cluster

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/yaml"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// Requests go to the cluster in the flags, with the namespace of its context, in pages. There are
// no other requests.
func TestReading(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		list := v1alpha1.TcxNsProgramList{TypeMeta: metav1.TypeMeta{APIVersion: "bpfman.io/v1alpha1", Kind: "TcxNsProgramList"}}
		name := "first"
		if r.URL.Query().Get("continue") == "" {
			list.Continue = "more"
		} else {
			name = "second"
		}
		list.Items = []v1alpha1.TcxNsProgram{{ObjectMeta: metav1.ObjectMeta{Name: name}}}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(list)
	}))
	defer server.Close()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	config := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: %q}}], contexts: [{name: c, context: {cluster: c, namespace: team}}]}`, server.URL)
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := genericclioptions.NewConfigFlags(true)
	flags.KubeConfig = &path
	to, err := With(flags)()
	if err != nil {
		t.Fatal(err)
	}
	if to.Namespace != "team" || to.Config.Host != server.URL {
		t.Errorf("connected to namespace %q at %s", to.Namespace, to.Config.Host)
	}
	var names []string
	err = Each(t.Context(), to, &v1alpha1.TcxNsProgramList{}, func(o *v1alpha1.TcxNsProgram) error {
		names = append(names, o.Name)
		return nil
	})
	if err != nil || !slices.Equal(names, []string{"first", "second"}) {
		t.Errorf("read %q, %v", names, err)
	}
	const kinds, list = "/apis/bpfman.io/v1alpha1", "/apis/bpfman.io/v1alpha1/tcxnsprograms"
	if !slices.Equal(asked, []string{kinds, list, list}) {
		t.Errorf("asked for %q", asked)
	}
}

// The flags that other commands need to reach the same cluster can be pasted into a shell.
func TestFlagsOfTheCluster(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	flags := genericclioptions.NewConfigFlags(false)
	server, user, groups, token, insecure := "https://10.0.0.1:6443", "it's me", []string{"ops", "dev"}, "secret-of-mine", true
	flags.APIServer, flags.Impersonate, flags.ImpersonateGroup, flags.BearerToken, flags.Insecure = &server, &user, &groups, &token, &insecure
	to, err := With(flags)()
	if err != nil {
		t.Fatal(err)
	}
	if want := ` --server 'https://10.0.0.1:6443' --as 'it'\''s me' --as-group 'ops' --as-group 'dev' --insecure-skip-tls-verify --token "$TOKEN"`; to.Flags != want || to.Context != server {
		t.Errorf("flags %s, want %s; context %q", to.Flags, want, to.Context)
	}
}

func TestNoKubeconfig(t *testing.T) {
	flags := genericclioptions.NewConfigFlags(true)
	absent := filepath.Join(t.TempDir(), "absent")
	flags.KubeConfig = &absent
	if _, err := With(flags)(); err == nil || !strings.Contains(err.Error(), "absent") {
		t.Errorf("error %v", err)
	}
}

// The names of kinds are the same as in the definitions.
func TestNamesOfKinds(t *testing.T) {
	paths, err := filepath.Glob("../../config/crd/bases/*.yaml")
	if err != nil || len(paths) < len(v1alpha1.UserKinds) {
		t.Fatalf("definitions %q, %v", paths, err)
	}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var definition struct {
			Spec struct {
				Names struct {
					Kind, Plural, Singular string
					ShortNames             []string
				}
			}
		}
		if err := yaml.Unmarshal(content, &definition); err != nil {
			t.Fatal(err)
		}
		names := definition.Spec.Names
		if !slices.ContainsFunc(v1alpha1.UserKinds, func(k v1alpha1.Kind[v1alpha1.UserObject]) bool { return k.Name == names.Kind }) {
			continue
		}
		for _, name := range append(names.ShortNames, names.Kind, names.Plural, names.Singular, names.Plural+".bpfman.io", names.Singular+".v1alpha1.bpfman.io") {
			if k, err := KindOf(name); err != nil || k.Name != names.Kind {
				t.Errorf("%q is the kind %q, %v, not %s", name, k.Name, err, names.Kind)
			}
		}
	}
}

func TestParseOwner(t *testing.T) {
	for args, want := range map[string]string{
		"tcxprog/a": "TcxProgram a", "TcxPrograms a": "TcxProgram a", "bpfapp.bpfman.io/x.y": "BpfApplication x.y", "tcxnsprog/a": "TcxNsProgram team/a",
		"tcxprogram": "error", "tcxprogram/": "error", "tcxprogram/a b": "error", "pod/a": "error", "tcxprogram.apps/a": "error", "/": "error", "": "error",
	} {
		got, err := (&Cluster{Namespace: "team"}).parseOwner(strings.Split(args, " "))
		text := got.String()
		if err != nil {
			text = "error"
		}
		if text != want {
			t.Errorf("%q is %q (%v), want %q", args, text, err, want)
		}
	}
}

// Commands read a BpfApplication as the one that the cluster has.
func TestScopeOfBpfApplication(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/apis/bpfman.io/v1alpha1":
			_, _ = io.WriteString(w, `{"kind":"APIResourceList","resources":[{"name":"bpfapplications","kind":"BpfApplication","namespaced":true}]}`)
		case "/apis/bpfman.io/v1alpha1/namespaces/team/bpfapplications/x":
			_, _ = io.WriteString(w, `{"apiVersion":"bpfman.io/v1alpha1","kind":"BpfApplication","metadata":{"name":"x","namespace":"team"},"spec":{"byteCode":{"path":"/x.o"}}}`)
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	flags := genericclioptions.NewConfigFlags(false)
	flags.APIServer, flags.Namespace = &server.URL, new("team")
	to, err := With(flags)()
	if err != nil {
		t.Fatal(err)
	}
	owner, err := to.Find(t.Context(), []string{"bpfapp/x"})
	if err != nil || owner.String() != "BpfApplication team/x" {
		t.Fatalf("%s, %v", owner, err)
	}
	o, err := Get(t.Context(), to, owner)
	if err != nil || o.GetAppCommon().ByteCode.Path == nil || *o.GetAppCommon().ByteCode.Path != "/x.o" {
		t.Errorf("%+v, %v", o, err)
	}
	if k, err := KindOf("bpfapp"); err != nil || k.Namespaced {
		t.Errorf("without a cluster: %+v, %v", k, err)
	}
}
