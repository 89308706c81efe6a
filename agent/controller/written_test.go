// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"errors"
	"testing"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// The watch may show a write before its answer is there, and what others write meanwhile.
func TestOwnWritesAreToldFromThoseOfOthers(t *testing.T) {
	key := program.Key{Kind: "TcxProgram", Name: "p"}
	version := func(v string) *v1alpha1.BpfProgram {
		o := &v1alpha1.BpfProgram{}
		o.Name, o.ResourceVersion = "p-1", v
		return o
	}
	for name, test := range map[string]struct {
		shown   []string // while the write, which makes version 7, waits for its answer
		deleted bool
		err     error
		changed bool
		after   string // shown then
		seen    bool
		keeps   bool
	}{
		"shown later":              {after: "7", seen: true},
		"shown before the answer":  {shown: []string{"7"}, after: "7"},
		"an older one before it":   {shown: []string{"6"}, after: "7", seen: true},
		"another's write later":    {after: "8"},
		"another's write as early": {shown: []string{"7", "8"}, changed: true, after: "8"},
		"an older one later":       {after: "6", seen: true, keeps: true},
		"a write that failed":      {shown: []string{"6"}, err: errors.New("conflict"), after: "6"},
		"deleted before it ends":   {shown: []string{"7"}, deleted: true, after: "7"},
	} {
		t.Run(name, func(t *testing.T) {
			var l lastWritten
			object := version("5")
			changed, err := l.write(key, object, func() error {
				for _, v := range test.shown {
					if !l.seen(key, version(v)) {
						t.Errorf("version %s is news while the object is written", v)
					}
				}
				if test.deleted {
					l.drop(key, object.Name)
				}
				if test.err == nil {
					object.ResourceVersion = "7"
				}
				return test.err
			})
			if changed != test.changed || !errors.Is(err, test.err) {
				t.Errorf("changed by others is %v, error %v", changed, err)
			}
			if seen := l.seen(key, version(test.after)); seen != test.seen {
				t.Errorf("version %s afterwards is known: %v", test.after, seen)
			}
			if keeps := len(l.of(key)) > 0; keeps != test.keeps {
				t.Errorf("it keeps the object: %v", keeps)
			}
		})
	}
}
