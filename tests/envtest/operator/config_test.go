// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package operator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/bpfman/bpfman-operator/operator/deploy"
	"github.com/bpfman/bpfman-operator/tests/configuration"
	"github.com/bpfman/bpfman-operator/tests/envtest"
)

// TestEachKey edits each key of the ConfigMap. A valid value changes only the corresponding
// parts of the node pods, in one write. Without the value, everything is as before. An
// invalid value changes nothing, and an Event contains the reason.
func TestEachKey(t *testing.T) {
	c := cluster(t)
	original := getDaemonSet(t, c)
	for key, values := range configuration.Keys {
		t.Run(key, func(t *testing.T) {
			before := getDaemonSet(t, c)
			becomes := func(t *testing.T, writes int64, changes ...string) {
				t.Helper()
				after := &appsv1.DaemonSet{}
				envtest.Eventually(t, "the DaemonSet is written", func(ctx context.Context) error {
					if err := c.Get(ctx, daemonSetKey, after); err != nil || after.Generation < before.Generation+writes {
						return errors.Join(fmt.Errorf("generation %d after %d", after.Generation, before.Generation), err)
					}
					return nil
				})
				if got := differences(t, original.Spec, after.Spec); after.Generation != before.Generation+writes || !slices.Equal(got, changes) {
					t.Errorf("%d writes, want %d; it differs in %q, want %q", after.Generation-before.Generation, writes, got, changes)
				}
			}
			t.Run("good", func(t *testing.T) {
				set(t, c, map[string]string{key: values.Good})
				becomes(t, 1, values.Changes...)
			})
			becomes(t, 2)
			t.Run("bad", func(t *testing.T) {
				configMap := set(t, c, map[string]string{key: values.Refused})
				envtest.Eventually(t, "an Event says why", hasEvent(c, configMap, deploy.ReasonInvalidConfig, func(note string) bool {
					return strings.Contains(note, key+": ") && strings.Contains(note, values.Reason)
				}))
				becomes(t, 2)
			})
		})
	}
}

// differences returns the paths at which two DaemonSets differ, in order. Elements of lists
// are identified by their names, or by their content.
func differences(t *testing.T, a, b appsv1.DaemonSetSpec) []string {
	t.Helper()
	var paths []string
	var compare func(path string, a, b any)
	members := func(path string, a, b map[string]any, format string) {
		for name := range maps.Clone(b) {
			if _, both := a[name]; !both {
				paths = append(paths, "+"+fmt.Sprintf(format, path, name))
			}
		}
		for name, value := range a {
			if other, both := b[name]; both {
				compare(fmt.Sprintf(format, path, name), value, other)
			} else {
				paths = append(paths, "-"+fmt.Sprintf(format, path, name))
			}
		}
	}
	compare = func(path string, a, b any) {
		switch a := a.(type) {
		case map[string]any:
			if b, same := b.(map[string]any); same {
				members(path, a, b, "%s.%s")
				return
			}
		case []any:
			if b, same := b.([]any); same {
				members(path, byName(a), byName(b), "%s[%s]")
				return
			}
		}
		if !reflect.DeepEqual(a, b) {
			paths = append(paths, path)
		}
	}
	var plain [2]map[string]any
	for i, spec := range []appsv1.DaemonSetSpec{a, b} {
		var err error
		if plain[i], err = runtime.DefaultUnstructuredConverter.ToUnstructured(&spec); err != nil {
			t.Fatal(err)
		}
	}
	compare("", plain[0], plain[1])
	for i, path := range paths {
		for _, prefix := range []string{".template.spec.", ".template."} {
			path = strings.Replace(path, prefix, "", 1)
		}
		paths[i] = path
	}
	slices.Sort(paths)
	return paths
}

// byName returns a map with names for the elements of a list: their own name, the name of a
// flag, or their content.
func byName(list []any) map[string]any {
	named := map[string]any{}
	for _, element := range list {
		switch element := element.(type) {
		case map[string]any:
			name, ok := element["name"].(string)
			if path, isMount := element["mountPath"].(string); isMount {
				name, ok = path, true
			}
			if !ok {
				name = fmt.Sprint(element)
			}
			named[name] = element
		default:
			name, _, _ := strings.Cut(fmt.Sprint(element), "=")
			named[name] = element
		}
	}
	return named
}
