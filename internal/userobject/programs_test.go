// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package userobject

import (
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// Each kind has one program with a configuration, and each field of an application's member is the configuration
// of its type.
func TestEveryKindAndType(t *testing.T) {
	for _, kind := range v1alpha1.UserKinds {
		o := kind.New()
		if strings.HasSuffix(kind.Name, "Application") {
			continue
		}
		programs := Programs(o)
		if len(programs) != 1 || programs[0].Info() == nil || programs[0].Namespaced != kind.Namespaced {
			t.Errorf("%s: %+v", kind.Name, programs)
		}
	}
	for member := range reflect.TypeFor[v1alpha1.BpfApplicationProgram]().Fields() {
		if member.Type.Kind() != reflect.Pointer {
			continue
		}
		var p Program
		value := reflect.ValueOf(&p.BpfApplicationProgram).Elem().FieldByName(member.Name)
		p.Type = v1alpha1.EBPFProgType(member.Name)
		if p.Info() != nil {
			t.Errorf("%s without a configuration: %+v", member.Name, p.Info())
		}
		value.Set(reflect.New(member.Type.Elem()))
		if p.Info() != value.Interface() {
			t.Errorf("%s: %+v", member.Name, p.Info())
		}
		namespaced, ok := reflect.TypeFor[v1alpha1.BpfNsApplicationProgram]().FieldByName(member.Name)
		if !ok {
			continue
		}
		o := &v1alpha1.BpfNsApplication{ObjectMeta: metav1.ObjectMeta{Namespace: "acme"}}
		o.Spec.Programs = []v1alpha1.BpfNsApplicationProgram{{Type: p.Type}}
		value = reflect.ValueOf(&o.Spec.Programs[0]).Elem().FieldByName(member.Name)
		value.Set(reflect.New(namespaced.Type.Elem()))
		fill(value.Elem())
		got := Programs(o)[0]
		if c := got.Containers(); c == nil || c.Namespace != "acme" || c.ContainerNames == nil || len(c.Pods.MatchLabels) == 0 {
			t.Errorf("%s: containers %+v", member.Name, c)
		}
		if lost := zero(reflect.ValueOf(got.Info()).Elem()); len(lost) > 0 {
			t.Errorf("%s: lost %q", member.Name, lost)
		}
	}
}

// fill gives each field a value.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			fill(field)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("key"), reflect.ValueOf("value"))
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	default:
		v.Set(reflect.ValueOf(7).Convert(v.Type()))
	}
}

// zero returns the fields of a struct without a value.
func zero(v reflect.Value) []string {
	var names []string
	for field, value := range v.Fields() {
		if value.IsZero() {
			names = append(names, field.Name)
		}
	}
	return names
}
