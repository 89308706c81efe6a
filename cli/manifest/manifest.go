// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package manifest creates an object that loads bytecode, from the content of the bytecode and a few options.
package manifest

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/bpfman/bpfman-operator/agent/reader/object"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/cluster"
)

// Options are what the bytecode doesn't contain.
type Options struct {
	// Kind is the kind of the object, with a name that kubectl accepts, or the part before "program", such as tcx
	// or application.
	Kind string
	// Name and Namespace are the name and namespace of the object. By default, Name is derived from the function,
	// or from the image.
	Name, Namespace string
	// Image is the reference from which nodes pull the bytecode.
	Image string
	// Functions are the functions to include. If it is empty, all functions that the kind supports are included.
	Functions []string
	// AttachTo maps functions to attach points: an interface, a tracepoint, or a function. The key "" stands for
	// the only function. The default comes from the section. For network programs, it is the primary interface.
	AttachTo map[string]string
	// Target is the executable or library for uprobes.
	Target string
}

func (o Options) attachTo(p object.Program) string {
	return cmp.Or(o.AttachTo[p.Name], o.AttachTo[""])
}

// member describes how to write a program of one type, as a separate object or in an application.
type member struct {
	// kind is the prefix of the kind's name. memberType is the type of a member in an application.
	kind, memberType string
	// section is the type of the section that contains such programs.
	section string
	// fields returns the fields of the program, without its function.
	fields func(object.Program, Options) (map[string]any, error)
}

// members contains all types. An application uses the first type that matches a section.
var members = []member{
	{"Xdp", "XDP", "xdp", network(nil)},
	{"Tcx", "TCX", "tc", network(map[string]any{"direction": "ingress"})},
	{"Tc", "TC", "tc", network(map[string]any{"direction": "ingress"})},
	{"Tracepoint", "Tracepoint", "tracepoint", tracepoint},
	{"Kprobe", "Kprobe", "kprobe", function(false)},
	{"Kprobe", "Kretprobe", "kretprobe", function(true)},
	{"Uprobe", "Uprobe", "uprobe", userFunction(false)},
	{"Uprobe", "Uretprobe", "uretprobe", userFunction(true)},
	{"Fentry", "Fentry", "fentry", function(false)},
	{"Fexit", "Fexit", "fexit", function(false)},
}

// Object returns an object that the API server accepts. It sets only required fields that have no default.
func Object(content object.Object, o Options) (map[string]any, error) {
	kind, err := kindOf(o.Kind)
	if err != nil {
		return nil, err
	}
	programs, err := choose(content.Programs, o.Functions, func(p object.Program) bool { return find(p, kind) != nil })
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind.Name, err)
	}
	for name := range o.AttachTo {
		if !slices.ContainsFunc(programs, func(p object.Program) bool { return p.Name == name || name == "" && len(programs) == 1 }) {
			return nil, fmt.Errorf("%s: specify which function %q is for: the bytecode has %s", kind.Name, o.AttachTo[name], names(programs))
		}
	}
	spec := map[string]any{}
	if isApplication(kind) {
		var all []any
		for _, p := range programs {
			m := find(p, kind)
			fields, err := m.describe(p, kind, o)
			if err != nil {
				return nil, err
			}
			// In an application, the type implies it.
			delete(fields, "retprobe")
			all = append(all, map[string]any{"type": m.memberType, strings.ToLower(m.memberType): fields})
		}
		spec["programs"] = all
	} else {
		if len(programs) > 1 {
			return nil, fmt.Errorf("%s: the bytecode has the functions %s: specify one, or make it an application", kind.Name, names(programs))
		}
		if spec, err = find(programs[0], kind).describe(programs[0], kind, o); err != nil {
			return nil, err
		}
	}
	spec["nodeselector"] = map[string]any{}
	spec["bytecode"] = map[string]any{"image": map[string]any{"url": o.Image}}
	metadata := map[string]any{"name": cmp.Or(o.Name, nameFor(programs, o.Image))}
	if kind.Namespaced {
		metadata["namespace"] = o.Namespace
	}
	return map[string]any{"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": kind.Name, "metadata": metadata, "spec": spec}, nil
}

func isApplication(kind v1alpha1.Kind[v1alpha1.UserObject]) bool {
	return strings.HasSuffix(kind.Name, "Application")
}

func kindOf(name string) (v1alpha1.Kind[v1alpha1.UserObject], error) {
	for _, long := range []string{name + "program", "bpf" + name} {
		if kind, err := cluster.KindOf(v1alpha1.UserKinds, long); err == nil {
			return kind, nil
		}
	}
	return cluster.KindOf(v1alpha1.UserKinds, name)
}

// find returns how to write the program with the kind, or nil if the kind doesn't support it.
func find(p object.Program, kind v1alpha1.Kind[v1alpha1.UserObject]) *member {
	i := slices.IndexFunc(members, func(m member) bool {
		if m.section != p.Type {
			return false
		}
		alone := m.kind + "Program"
		if kind.Namespaced {
			alone = m.kind + "NsProgram"
		}
		_, err := cluster.KindOf(v1alpha1.UserKinds, alone)
		return err == nil && (kind.Name == alone || isApplication(kind))
	})
	if i < 0 {
		return nil
	}
	return &members[i]
}

// choose returns the requested programs that fit the kind.
func choose(all []object.Program, functions []string, fits func(object.Program) bool) ([]object.Program, error) {
	for _, name := range functions {
		switch i := slices.IndexFunc(all, func(p object.Program) bool { return p.Name == name }); {
		case i < 0:
			return nil, fmt.Errorf("the bytecode has no function %q: it has %s", name, names(all))
		case !fits(all[i]):
			return nil, fmt.Errorf("function %s is in section %q, which doesn't match this kind", name, all[i].Section)
		}
	}
	var chosen []object.Program
	for _, p := range all {
		if fits(p) && (len(functions) == 0 || slices.Contains(functions, p.Name)) {
			chosen = append(chosen, p)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("the bytecode has no program for it: it has %s", names(all))
	}
	return chosen, nil
}

func names(programs []object.Program) string {
	texts := make([]string, len(programs))
	for i, p := range programs {
		texts[i] = fmt.Sprintf("%s (%s)", p.Name, p.Section)
	}
	return strings.Join(texts, ", ")
}

func (m member) describe(p object.Program, kind v1alpha1.Kind[v1alpha1.UserObject], o Options) (map[string]any, error) {
	fields, err := m.fields(p, o)
	if err != nil {
		return nil, fmt.Errorf("function %s: %w", p.Name, err)
	}
	fields["bpffunctionname"] = p.Name
	if kind.Namespaced {
		fields["containers"] = map[string]any{"pods": map[string]any{}}
	}
	return fields, nil
}

func network(more map[string]any) func(object.Program, Options) (map[string]any, error) {
	return func(p object.Program, o Options) (map[string]any, error) {
		fields := map[string]any{"interfaceselector": map[string]any{"primarynodeinterface": true}}
		if name := o.attachTo(p); name != "" {
			fields["interfaceselector"] = map[string]any{"interfaces": []any{name}}
		}
		maps.Copy(fields, more)
		return fields, nil
	}
}

func tracepoint(p object.Program, o Options) (map[string]any, error) {
	name := cmp.Or(o.attachTo(p), target(p))
	if strings.Count(name, "/") != 1 {
		return nil, fmt.Errorf("its section %q names no tracepoint: specify one, such as syscalls/sys_enter_kill", p.Section)
	}
	return map[string]any{"names": []any{name}}, nil
}

func function(returns bool) func(object.Program, Options) (map[string]any, error) {
	return func(p object.Program, o Options) (map[string]any, error) {
		name := cmp.Or(o.attachTo(p), target(p))
		if name == "" {
			return nil, fmt.Errorf("its section %q names no kernel function: specify one", p.Section)
		}
		fields := map[string]any{"func_name": name}
		if returns {
			fields["retprobe"] = true
		}
		return fields, nil
	}
}

func userFunction(returns bool) func(object.Program, Options) (map[string]any, error) {
	return func(p object.Program, o Options) (map[string]any, error) {
		// The section is uprobe//usr/bin/bash:readline or uprobe/libc:malloc, for example.
		file, symbol, _ := strings.Cut(target(p), ":")
		fields := map[string]any{}
		if symbol = cmp.Or(o.attachTo(p), symbol); symbol != "" {
			fields["func_name"] = symbol
		}
		if fields["target"] = cmp.Or(o.Target, file); fields["target"] == "" {
			return nil, fmt.Errorf("its section %q names no program or library: specify one as target", p.Section)
		}
		if symbol == "" {
			return nil, fmt.Errorf("its section %q names no function of the program: specify one", p.Section)
		}
		if returns {
			fields["retprobe"] = true
		}
		return fields, nil
	}
}

// target returns the part of the section after its type.
func target(p object.Program) string {
	_, name, _ := strings.Cut(p.Section, "/")
	return name
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// nameFor derives the name of an object from its only function, or from the repository of the image.
func nameFor(programs []object.Program, image string) string {
	name := programs[0].Name
	if len(programs) > 1 {
		repository := image[strings.LastIndex(image, "/")+1:]
		name, _, _ = strings.Cut(repository, ":")
		name, _, _ = strings.Cut(name, "@")
	}
	name = notInNames.ReplaceAllString(strings.ToLower(name), "-")
	name = strings.Trim(name[:min(len(name), validation.DNS1123LabelMaxLength)], "-")
	return cmp.Or(name, "program")
}
