// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package manifest creates an object that loads bytecode, from the content of the bytecode and a few options.
package manifest

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/bytecode/object"
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
	// fields returns the fields of the program, without its function, and what is missing to attach it.
	fields func(object.Program, Options) (fields map[string]any, missing string)
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
	{"Lsm", "LSM", "lsm", hook},
}

// Object returns an object that the API server accepts, and that nodes can load. It sets only required fields that have
// no default. If it isn't known where to attach a program, it has a placeholder there, and isn't attached. The notes say
// what to replace, what is left out, and what can be set, a line each.
func Object(content object.Object, o Options) (made map[string]any, notes []string, err error) {
	kind, err := kindOf(o.Kind)
	if err != nil {
		return nil, nil, err
	}
	programs, err := choose(content.Programs, o.Functions, func(p object.Program) bool { return find(p, kind) != nil })
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", kind.Name, err)
	}
	if isApplication(kind) && len(o.Functions) == 0 {
		programs, notes = leaveOut(content.Programs, programs, o)
	}
	for name := range o.AttachTo {
		if !slices.ContainsFunc(programs, func(p object.Program) bool { return p.Name == name || name == "" && len(programs) == 1 }) {
			return nil, nil, fmt.Errorf("%s: specify which function %q is for: the bytecode has %s", kind.Name, o.AttachTo[name], names(programs))
		}
	}
	spec := map[string]any{}
	if isApplication(kind) {
		var all []any
		for _, p := range programs {
			m := find(p, kind)
			fields, missing := m.describe(p, kind, o)
			notes = append(notes, missing...)
			// In an application, the type implies it.
			delete(fields, "retprobe")
			if kind.Name == linkedKind {
				all = append(all, linked(m, fields))
				continue
			}
			all = append(all, map[string]any{"type": m.memberType, strings.ToLower(m.memberType): fields})
		}
		spec["programs"] = all
	} else {
		if len(programs) > 1 {
			return nil, nil, fmt.Errorf("%s: the bytecode has the functions %s: specify one, or make it an application", kind.Name, names(programs))
		}
		var missing []string
		spec, missing = find(programs[0], kind).describe(programs[0], kind, o)
		notes = append(notes, missing...)
	}
	notes = append(notes, globals(content)...)
	spec["nodeselector"] = map[string]any{}
	spec["bytecode"] = map[string]any{"image": map[string]any{"url": o.Image}}
	if kind.Name == linkedKind {
		asLinked(spec, notes)
	}
	metadata := map[string]any{"name": cmp.Or(o.Name, nameFor(programs, o.Image))}
	if kind.Namespaced {
		metadata["namespace"] = o.Namespace
	}
	return map[string]any{"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": kind.Name, "metadata": metadata, "spec": spec}, notes, nil
}

// alternatives has for types of programs those that tools use instead on kernels without BPF trampolines.
var alternatives = map[string]string{"fentry": "kprobe", "fexit": "kretprobe"}

// leaveOut returns the programs without those that others in the object replace, with a note for each program of the
// object that isn't there.
func leaveOut(all, fitting []object.Program, o Options) (chosen []object.Program, notes []string) {
	// Such functions can't be loaded without the function that they trace.
	unnamed := func(p object.Program) bool {
		return alternatives[strings.TrimSuffix(p.Type, ".s")] != "" && target(p) == "" && o.attachTo(p) == ""
	}
	others := slices.ContainsFunc(fitting, func(p object.Program) bool { return !unnamed(p) })
	for _, p := range all {
		replaces := func(q object.Program) bool {
			return q.Type == alternatives[p.Type] && target(q) == target(p) && target(p) != ""
		}
		switch i := slices.IndexFunc(fitting, replaces); {
		case p.Unsupported != "":
			notes = append(notes, fmt.Sprintf("Function %s is left out: %s.", p.Name, p.Unsupported))
		case !slices.ContainsFunc(fitting, func(q object.Program) bool { return q.Name == p.Name }):
			notes = append(notes, fmt.Sprintf("Function %s is left out: this kind can't have it.", p.Name))
		case unnamed(p) && others:
			notes = append(notes, fmt.Sprintf("Function %s is left out: its section %q names no function of the kernel, without which it can't be loaded. To load it, set --attach-to %s=FUNCTION.", p.Name, p.Section, p.Name))
		case i >= 0:
			notes = append(notes, fmt.Sprintf("Function %s (%s) is left out: function %s (%s) is an alternative that more kernels can load.", p.Name, p.Section, fitting[i].Name, fitting[i].Section))
		default:
			chosen = append(chosen, p)
		}
	}
	return chosen, notes
}

// globals returns notes about the variables that an object can set.
func globals(content object.Object) []string {
	var values, data []string
	for _, v := range content.Globals {
		if !v.Constant() || v.Type == "" {
			continue
		}
		if value, has := v.Literal(content.Order()); has {
			values = append(values, fmt.Sprintf("  %s: %s # %s", v.Name, value, v.Described.Name))
			continue
		}
		data = append(data, fmt.Sprintf("  %s: %s # type %s, size %d", v.Name, base64.StdEncoding.EncodeToString(v.Default[:min(len(v.Default), maxDefault)]), v.Type, v.Size))
	}
	if len(values) > 0 {
		values = append([]string{"Constants of the bytecode, with their defaults. To set one, write it to spec.globals:"}, values...)
	}
	if len(data) > 0 {
		data = append([]string{"Constants of other types, with their defaults in base64. To set one, write it to spec.globaldata:"}, data...)
	}
	return append(values, data...)
}

// maxDefault is the maximum length of a default in a note, in bytes.
const maxDefault = 48

func isApplication(kind v1alpha1.Kind[v1alpha1.UserObject]) bool {
	return strings.HasSuffix(kind.Name, "Application")
}

func kindOf(name string) (v1alpha1.Kind[v1alpha1.UserObject], error) {
	for _, long := range []string{name + "program", "bpf" + name} {
		if kind, err := cluster.KindOf(long); err == nil {
			return kind, nil
		}
	}
	return cluster.KindOf(name)
}

// find returns how to write the program with the kind, or nil if the kind doesn't support it.
func find(p object.Program, kind v1alpha1.Kind[v1alpha1.UserObject]) *member {
	i := slices.IndexFunc(members, func(m member) bool {
		if m.section != strings.TrimSuffix(p.Type, ".s") || p.Unsupported != "" {
			return false
		}
		alone := m.kind + "Program"
		if kind.Namespaced {
			alone = m.kind + "NsProgram"
		}
		if m.memberType == string(v1alpha1.ProgTypeLSM) && kind.Name == linkedKind {
			return false // upstream's v0.6 has no such members
		}
		_, err := cluster.KindOf(alone)
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

func (m member) describe(p object.Program, kind v1alpha1.Kind[v1alpha1.UserObject], o Options) (fields map[string]any, notes []string) {
	fields, missing := m.fields(p, o)
	if missing != "" {
		fields["attach"] = false
		notes = []string{fmt.Sprintf("Function %s isn't attached: its section %q names no %s. Replace the placeholder, and remove attach.", p.Name, p.Section, missing)}
	}
	fields["bpffunctionname"] = p.Name
	if kind.Namespaced {
		fields["containers"] = map[string]any{"pods": map[string]any{}}
	}
	return fields, notes
}

func network(more map[string]any) func(object.Program, Options) (map[string]any, string) {
	return func(p object.Program, o Options) (map[string]any, string) {
		fields := map[string]any{"interfaceselector": map[string]any{"primarynodeinterface": true}}
		if name := o.attachTo(p); name != "" {
			fields["interfaceselector"] = map[string]any{"interfaces": []any{name}}
		}
		maps.Copy(fields, more)
		return fields, ""
	}
}

// Placeholders for what bytecode doesn't say. The API server accepts them.
const (
	placeholderTracepoint = "CATEGORY/EVENT"
	placeholderFunction   = "FUNCTION"
	placeholderTarget     = "LIBRARY"
	placeholderHook       = "hook"
)

func tracepoint(p object.Program, o Options) (map[string]any, string) {
	name := cmp.Or(o.attachTo(p), target(p))
	if strings.Count(name, "/") != 1 {
		return map[string]any{"names": []any{placeholderTracepoint}}, "tracepoint"
	}
	return map[string]any{"names": []any{name}}, ""
}

// systemCalls are the prefixes of the kernel's functions for system calls by libbpf's section. Their names depend on the
// architecture.
var systemCalls = []string{"ksyscall", "kretsyscall"}

func function(returns bool) func(object.Program, Options) (map[string]any, string) {
	return func(p object.Program, o Options) (fields map[string]any, missing string) {
		name := target(p)
		// With libbpf, one program can be for several functions.
		if prefix, _, _ := strings.Cut(p.Section, "/"); slices.Contains(systemCalls, prefix) || strings.ContainsAny(name, "*?") {
			name = ""
		}
		if name = cmp.Or(o.attachTo(p), name); name == "" {
			name, missing = placeholderFunction, "function of the kernel"
		}
		fields = map[string]any{"func_name": name}
		if returns {
			fields["retprobe"] = true
		}
		return fields, missing
	}
}

func hook(p object.Program, o Options) (fields map[string]any, missing string) {
	name := cmp.Or(o.attachTo(p), target(p))
	if name == "" {
		name, missing = placeholderHook, "hook"
	}
	return map[string]any{"hook_name": name}, missing
}

func userFunction(returns bool) func(object.Program, Options) (map[string]any, string) {
	return func(p object.Program, o Options) (fields map[string]any, missing string) {
		// The section is uprobe//usr/bin/bash:readline or uprobe/libc:malloc, for example.
		file, symbol, _ := strings.Cut(target(p), ":")
		symbol, file = cmp.Or(o.attachTo(p), symbol), cmp.Or(o.Target, file)
		switch {
		case symbol == "" && file == "":
			missing = "function and no program or library"
		case symbol == "":
			missing = "function of the program"
		case file == "":
			missing = "program or library"
		}
		fields = map[string]any{"func_name": cmp.Or(symbol, placeholderFunction), "target": cmp.Or(file, placeholderTarget)}
		if returns {
			fields["retprobe"] = true
		}
		return fields, missing
	}
}

// target returns the part of the section after its type, which names where to attach, if it isn't a placeholder of its own.
func target(p object.Program) string {
	_, name, _ := strings.Cut(p.Section, "/")
	if strings.HasPrefix(name, "dummy_") { // in bcc's tools
		return ""
	}
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
