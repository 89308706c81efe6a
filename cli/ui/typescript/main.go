// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Command typescript prints the types of the views in TypeScript, so that the page is checked against what the server
// sends, including the types of the API.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/cli/ui/view"
)

// views are the types of what the server sends.
var views = []reflect.Type{
	reflect.TypeFor[view.Session](), reflect.TypeFor[view.Cluster](), reflect.TypeFor[view.Node](), reflect.TypeFor[view.Object](),
	reflect.TypeFor[view.Usage](), reflect.TypeFor[view.Dump](),
}

func main() {
	p := printer{names: map[reflect.Type]string{}}
	for _, t := range views {
		p.name(t)
	}
	fmt.Println("// Generated from the Go types of the views by cli/ui/typescript.")
	for len(p.queue) > 0 {
		t := p.queue[0]
		p.queue = p.queue[1:]
		fmt.Printf("\nexport interface %s {\n", p.names[t])
		p.fields(t)
		fmt.Println("}")
	}
	if p.problem != nil {
		fmt.Fprintln(os.Stderr, "error:", p.problem)
		os.Exit(1)
	}
}

type printer struct {
	names   map[reflect.Type]string
	queue   []reflect.Type
	problem error
}

// name returns the name of a struct's interface, and adds it to those to print.
func (p *printer) name(t reflect.Type) string {
	if name, known := p.names[t]; known {
		return name
	}
	name := t.Name()
	for _, taken := range p.names {
		if taken == name {
			packages := strings.Split(t.PkgPath(), "/")
			last := packages[len(packages)-1]
			name = strings.ToUpper(last[:1]) + last[1:] + name
			break
		}
	}
	p.names[t] = name
	p.queue = append(p.queue, t)
	return name
}

func (p *printer) fields(t reflect.Type) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-", !f.IsExported() && !f.Anonymous:
		case f.Anonymous && name == "":
			embedded := f.Type
			if embedded.Kind() == reflect.Pointer {
				embedded = embedded.Elem()
			}
			p.fields(embedded)
		case name == "":
			p.problem = fmt.Errorf("field %s of %s has no name in JSON", f.Name, t)
		default:
			optional := ""
			if strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero") {
				optional = "?"
			}
			fmt.Printf("  %s%s: %s;\n", name, optional, p.typeOf(f.Type))
		}
	}
}

// texts are the types that JSON encodes as strings.
var texts = []reflect.Type{reflect.TypeFor[time.Time](), reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime]()}

func (p *printer) typeOf(t reflect.Type) string {
	switch {
	case slices.Contains(texts, t):
		return "string"
	case t == reflect.TypeFor[json.RawMessage]():
		return "unknown"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return p.typeOf(t.Elem())
	case reflect.Struct:
		return p.name(t)
	case reflect.Slice, reflect.Array:
		return p.typeOf(t.Elem()) + "[]"
	case reflect.Map:
		return "Record<string, " + p.typeOf(t.Elem()) + ">"
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64:
		return "number"
	default:
		p.problem = fmt.Errorf("%s has no type in TypeScript", t)
		return "unknown"
	}
}
