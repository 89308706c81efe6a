// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package apiserver_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// Random writes of two actors to the same few objects have the same answers and events.
func TestRandomWrites(t *testing.T) {
	const sequences, writes = 20, 40
	for seed := range uint64(sequences) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			g := generator{rand.New(rand.NewPCG(seed, 0)), fmt.Sprintf("random-%d", seed)}
			watched := [2]step{}
			var steps [2][]step
			for kind := range 2 {
				watched[kind] = step{method: "GET", path: g.path(kind) + "?watch=true&labelSelector=" + g.prefix}
				for range writes {
					steps[kind] = append(steps[kind], g.write(kind))
				}
				steps[kind] = append(steps[kind], step{method: "GET", path: g.path(kind) + "?labelSelector=" + g.prefix},
					step{method: "POST", path: g.path(kind), body: g.object(kind, "end", "x")}, step{method: "DELETE", path: g.path(kind) + "/end"})
			}
			p := newPair(t)
			for kind := range 2 {
				p.watch(watched[kind], steps[kind]...)
			}
		})
	}
}

type generator struct {
	*rand.Rand
	prefix string
}

func (g *generator) path(kind int) string {
	return []string{bpfman + "tracepointprograms", "/api/v1/namespaces/default/configmaps"}[kind]
}

func (g *generator) object(kind int, name, more string) string {
	metadata := fmt.Sprintf(`,"labels":{%q:"yes"}`, g.prefix)
	if more != "x" {
		metadata += more
	}
	return []func(string, string) string{tracepoint, configMap}[kind](name, metadata)
}

func one[T any](g *generator, of ...T) T { return of[g.IntN(len(of))] }

func (g *generator) write(kind int) step {
	name := fmt.Sprintf("%s-%d", g.prefix, g.IntN(2))
	s := step{path: g.path(kind) + "/" + name, agent: one(g, "one", "two")}
	field := []string{`"spec":{"names":["a/%d"]}`, `"data":{"key":"%d"}`}[kind]
	field = fmt.Sprintf(field, g.IntN(3))
	header := []string{`"apiVersion":"bpfman.io/v1alpha1","kind":"TracepointProgram"`, `"apiVersion":"v1","kind":"ConfigMap"`}[kind]
	switch g.IntN(10) {
	case 0, 1:
		s.method, s.path, s.body = "POST", g.path(kind), g.object(kind, name, one(g, "", `,"finalizers":["bpfman.io/test"]`))
	case 2:
		s.method, s.body = "PUT", g.object(kind, name, one(g, "", `,"resourceVersion":"1"`, `,"resourceVersion":"{version `+name+`}"`, `,"uid":"{uid `+name+`}","resourceVersion":"{version `+name+`}"`))
	case 3:
		s.method, s.content, s.body = "PATCH", merge, "{"+field+"}"
	case 4:
		s.method, s.content = "PATCH", merge
		s.body = `{"metadata":` + one(g, `{"annotations":{"a":"b"}}`, `{"annotations":null}`, `{"finalizers":null}`, `{"resourceVersion":"{version `+name+`}","labels":{"a":"b"}}`, `{"uid":"other"}`) + "}"
	case 5:
		s.method, s.content = "PATCH", jsonType
		s.body = `[{"op":"test","path":"/metadata/resourceVersion","value":"{version ` + name + `}"},{"op":"add","path":"/metadata/annotations","value":{"patched":"yes"}}]`
	case 6:
		s.method, s.content, s.path = "PATCH", merge, s.path+"/status"
		s.body = fmt.Sprintf(`{"spec":{"names":["c/d"]},"status":{"observedGeneration":%d}}`, g.IntN(3))
	case 7, 8:
		s.method, s.content, s.body = "PATCH", apply, "{"+header+","+one(g, field, `"metadata":{"annotations":{"applied":"yes"}}`, `"metadata":{"name":"`+name+`"}`)+"}"
		s.path += "?fieldManager=" + one(g, "three", "four") + one(g, "", "&force=true")
	default:
		s.method, s.body = "DELETE", one(g, "", "", `{"preconditions":{"uid":"{uid `+name+`}"}}`, `{"preconditions":{"resourceVersion":"{version `+name+`}"}}`)
	}
	return s
}
