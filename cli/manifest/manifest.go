// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package manifest writes the object that loads bytecode, from what is in the bytecode and the little that isn't.
package manifest

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/bytecode"
	"github.com/bpfman/bpfman-operator/cli/cluster"
)

// Options are what bytecode doesn't say.
type Options struct {
	// Kind is the kind of the object as kubectl takes it, or what comes before "program": tcx, application.
	Kind string
	// Name and Namespace are the object's. Without a name it is that of the function, or of the image.
	Name, Namespace string
	// Image is where the nodes pull the bytecode from.
	Image string
	// Functions are those that are wanted, empty for all that the kind can have.
	Functions []string
	// AttachTo has by function what it is attached to, and for "" what the only function is: an interface, a tracepoint
	// or a function. Else it is what the section says, and for network programs the primary interface.
	AttachTo map[string]string
	// Target is the program or library of uprobes.
	Target string
}

func (o Options) attachTo(p bytecode.Program) string {
	return cmp.Or(o.AttachTo[p.Name], o.AttachTo[""])
}

// member is how a program of one type is written, alone or in an application.
type member struct {
	// kind is what the kind's name begins with, and memberType the type of an application's member.
	kind, memberType string
	// section is the type of section that such programs come from.
	section string
	// fields are those of the program but for its function.
	fields func(bytecode.Program, Options) (map[string]any, error)
}

// members are all types, of which an application takes the first that a section fits.
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

// Object returns an object that the API server accepts. It has what must be given, and nothing that has a default.
func Object(content bytecode.Object, o Options) (map[string]any, error) {
	kind, err := kindOf(o.Kind)
	if err != nil {
		return nil, err
	}
	programs, err := choose(content.Programs, o.Functions, func(p bytecode.Program) bool { return find(p, kind) != nil })
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind.Name, err)
	}
	for name := range o.AttachTo {
		if !slices.ContainsFunc(programs, func(p bytecode.Program) bool { return p.Name == name || name == "" && len(programs) == 1 }) {
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
			// In an application the type says it.
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
	return cluster.KindOf(v1alpha1.UserKinds, name) //nolint:wrapcheck // it says which kinds there are
}

// find returns how the program is written in the kind; nil where it can't be.
func find(p bytecode.Program, kind v1alpha1.Kind[v1alpha1.UserObject]) *member {
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

// choose returns the wanted programs, of those that fit.
func choose(all []bytecode.Program, functions []string, fits func(bytecode.Program) bool) ([]bytecode.Program, error) {
	for _, name := range functions {
		switch i := slices.IndexFunc(all, func(p bytecode.Program) bool { return p.Name == name }); {
		case i < 0:
			return nil, fmt.Errorf("the bytecode has no function %q: it has %s", name, names(all))
		case !fits(all[i]):
			return nil, fmt.Errorf("function %s is in section %q, which doesn't fit this kind", name, all[i].Section)
		}
	}
	var chosen []bytecode.Program
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

func names(programs []bytecode.Program) string {
	texts := make([]string, len(programs))
	for i, p := range programs {
		texts[i] = fmt.Sprintf("%s (%s)", p.Name, p.Section)
	}
	return strings.Join(texts, ", ")
}

func (m member) describe(p bytecode.Program, kind v1alpha1.Kind[v1alpha1.UserObject], o Options) (map[string]any, error) {
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

func network(more map[string]any) func(bytecode.Program, Options) (map[string]any, error) {
	return func(p bytecode.Program, o Options) (map[string]any, error) {
		fields := map[string]any{"interfaceselector": map[string]any{"primarynodeinterface": true}}
		if name := o.attachTo(p); name != "" {
			fields["interfaceselector"] = map[string]any{"interfaces": []any{name}}
		}
		maps.Copy(fields, more)
		return fields, nil
	}
}

func tracepoint(p bytecode.Program, o Options) (map[string]any, error) {
	name := cmp.Or(o.attachTo(p), target(p))
	if strings.Count(name, "/") != 1 {
		return nil, fmt.Errorf("its section %q names no tracepoint: specify one, such as syscalls/sys_enter_kill", p.Section)
	}
	return map[string]any{"names": []any{name}}, nil
}

func function(returns bool) func(bytecode.Program, Options) (map[string]any, error) {
	return func(p bytecode.Program, o Options) (map[string]any, error) {
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

func userFunction(returns bool) func(bytecode.Program, Options) (map[string]any, error) {
	return func(p bytecode.Program, o Options) (map[string]any, error) {
		// As in uprobe//usr/bin/bash:readline or uprobe/libc:malloc.
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

// target is what the section says behind its type.
func target(p bytecode.Program) string {
	_, name, _ := strings.Cut(p.Section, "/")
	return name
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// nameFor makes an object's name of the one function, or of the image's repository.
func nameFor(programs []bytecode.Program, image string) string {
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
