// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package gitops

import (
	"path/filepath"
	"strings"
	"testing"

	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// customization has the form of a directory in resource_customizations of Argo CD's repository. The underscore stands
// for all kinds of the group.
const customization = "../../config/argocd/bpfman.io/_"

// health is the result of a health check.
type health struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

// check runs the health check in the Lua interpreter of Argo CD.
func check(t *testing.T, script string, o *unstructured.Unstructured) health {
	t.Helper()
	l := lua.NewState()
	defer l.Close()
	l.SetGlobal("obj", inLua(l, o.Object))
	must.Succeed(t, l.DoString(script))
	result, ok := l.Get(-1).(*lua.LTable)
	if !ok {
		t.Fatalf("the script returns %s", l.Get(-1))
	}
	return health{lua.LVAsString(result.RawGetString("status")), lua.LVAsString(result.RawGetString("message"))}
}

func inLua(l *lua.LState, value any) lua.LValue {
	switch v := value.(type) {
	case map[string]any:
		table := l.NewTable()
		for key, field := range v {
			table.RawSetString(key, inLua(l, field))
		}
		return table
	case []any:
		table := l.NewTable()
		for _, item := range v {
			table.Append(inLua(l, item))
		}
		return table
	case string:
		return lua.LString(v)
	case bool:
		return lua.LBool(v)
	case int64:
		return lua.LNumber(v)
	case float64:
		return lua.LNumber(v)
	}
	return lua.LNil
}

func read(t *testing.T, path string) string {
	t.Helper()
	content := must.Read(t, filepath.Clean(path))
	return string(content)
}

func TestArgoCD(t *testing.T) {
	script := read(t, filepath.Join(customization, "health.lua"))
	for _, kind := range v1alpha1.UserKinds {
		for _, s := range states {
			t.Run(kind.Name+"/"+s.name, func(t *testing.T) {
				if got := check(t, script, s.object(t, kind)); got.Status != s.argo || s.summary != nil && s.summary.Generation == generation && !strings.Contains(got.Message, s.message) {
					t.Errorf("%+v, want %s: %s", got, s.argo, s.message)
				}
			})
		}
	}
	// Kinds without these conditions, also those of upstream's v0.6, are what they were without a check.
	node := &v1alpha1.BpfNode{}
	if got := check(t, script, served(t, "BpfNode", node)); got.Status != "Healthy" {
		t.Errorf("BpfNode: %+v", got)
	}
}

// The customization passes its tests in the format of Argo CD's repository.
func TestArgoCDCustomization(t *testing.T) {
	var file struct {
		Tests []struct {
			HealthStatus health `json:"healthStatus"`
			InputPath    string `json:"inputPath"`
		} `json:"tests"`
	}
	must.Succeed(t, yaml.UnmarshalStrict([]byte(read(t, filepath.Join(customization, "health_test.yaml"))), &file))
	script := read(t, filepath.Join(customization, "health.lua"))
	for _, test := range file.Tests {
		o := &unstructured.Unstructured{}
		must.Succeed(t, yaml.Unmarshal([]byte(read(t, filepath.Join(customization, test.InputPath))), &o.Object))
		if got := check(t, script, o); got != test.HealthStatus {
			t.Errorf("%s: %+v, want %+v", test.InputPath, got, test.HealthStatus)
		}
	}
	if inputs, err := filepath.Glob(filepath.Join(customization, "testdata", "*.yaml")); err != nil || len(inputs) != len(file.Tests) {
		t.Errorf("%d tests, and inputs %q, %v", len(file.Tests), inputs, err)
	}
}

// The page for users has the same script.
func TestArgoCDPage(t *testing.T) {
	page := read(t, "../../docs/gitops.md")
	_, rest, _ := strings.Cut(page, "```yaml\napiVersion: v1\nkind: ConfigMap\n")
	block, _, _ := strings.Cut(rest, "```")
	var argo struct {
		Data map[string]string `json:"data"`
	}
	must.Succeed(t, yaml.Unmarshal([]byte(block), &argo))
	var kinds map[string]map[string]string
	must.Succeed(t, yaml.Unmarshal([]byte(argo.Data["resource.customizations"]), &kinds))
	if got, want := kinds["bpfman.io/*"]["health.lua"], read(t, filepath.Join(customization, "health.lua")); got != want {
		t.Errorf("the script on the page:\n%s", got)
	}
}
