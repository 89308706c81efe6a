// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package daemon

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// A retry that fails with the same cause has the same text. Another cause has its own.
func TestFailuresOfOneLoad(t *testing.T) {
	for name, test := range map[string]struct{ first, second, want string }{
		"the same":                       {"no", "no", "no"},
		"another reason":                 {"no", "never", "never"},
		"another time of the verifier":   {"R1 !read_ok\nverification time 25 usec\nstack depth 0", "R1 !read_ok\nverification time 31 usec\nstack depth 0", "R1 !read_ok\nstack depth 0"},
		"another panicked task":          {"task 12 panicked at x", "task 13 panicked at x", "task panicked at x"},
		"another address":                {"4: (18) r1 = 0xffff888267bffa00 no", "4: (18) r1 = 0xffff888267bfe400 no", "4: (18) r1 = (address) no"},
		"another map":                    {"map id 7: no", "map id 8: no", "map id (number): no"},
		"another offset":                 {"r1 = 0xffff888267bffa00 off=98", "r1 = 0xffff888267bffa00 off=97", "r1 = (address) off=97"},
		"another order of names":         {`names ["b_c", "a"]`, `names ["a", "b_c"]`, `names ["a", "b_c"]`},
		"another name":                   {`names ["a", "b_c"]`, `names ["a", "b_d"]`, `names ["a", "b_d"]`},
		"another unknown global":         {"x: symbol with name A not found in the symbols table", "x: symbol with name B not found in the symbols table", "x: symbol with name A not found in the symbols table"},
		"another map that isn't created": {"failed to create map `exe_id_to_16` with code -1", "failed to create map `exe_id_to_17` with code -1", "failed to create map `exe_id_to_16` with code -1"},
		"another symbol":                 {"two or more symbols in section `15` have the same address 0x9AB930", "two or more symbols in section `3` have the same address 0x401000", "two or more symbols in section `15` have the same address 0x9AB930"},
		"a status in a status":           {`status: Aborted, message: "task 1 panicked", details: []`, "task 2 panicked", "task panicked"},
		"another interface":              {"Invalid Interface eth0", "Invalid Interface eth1", "Invalid Interface eth1"},
	} {
		t.Run(name, func(t *testing.T) {
			i := NewInventory(nil, "")
			load := &gobpfman.LoadRequest{Uuid: new("uid"), Metadata: map[string]string{v1alpha1.MetadataLoad: "load"}}
			first := i.loadFailure(rust{}, load, status.Error(codes.Aborted, test.first))
			if again := i.loadFailure(rust{}, load, status.Error(codes.Aborted, test.first)); again.Error() != first.Error() {
				t.Errorf("%v, then %v", first, again)
			}
			if got := status.Convert(i.loadFailure(rust{}, load, status.Error(codes.Aborted, test.second))).Message(); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			if lost := status.Error(codes.Unavailable, test.first); i.loadFailure(rust{}, load, lost) != lost { //nolint:errorlint // must be the same error
				t.Error("an error of the connection is changed")
			}
		})
	}
}

// What a user changes in an object is another Load, and the reference can lead to another
// image. The error can then be about something else.
func TestFailuresOfAnotherLoad(t *testing.T) {
	for name, key := range map[string]string{"another Load": v1alpha1.MetadataLoad, "another image": v1alpha1.MetadataManifest} {
		t.Run(name, func(t *testing.T) {
			i := NewInventory(nil, "")
			wrong := func(value, global string) string {
				request := &gobpfman.LoadRequest{Uuid: new("uid"), Metadata: map[string]string{key: value}}
				return status.Convert(i.loadFailure(rust{}, request, status.Error(codes.Aborted, "symbol with name "+global+" not found in the symbols table"))).Message()
			}
			wrong("one", "A")
			if got, want := wrong("two", "B"), "symbol with name B not found in the symbols table"; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

// The error of a call is the one that was normalized.
func TestLoadRemembersItsFailure(t *testing.T) {
	d := daemontest.New(t.TempDir())
	i := known(t, d, t.TempDir())
	var texts []string
	for _, name := range []string{"A", "B"} {
		d.Fault = func(call string, _ proto.Message, _ bool) error {
			return status.Error(codes.Aborted, call+": symbol with name "+name+" not found in the symbols table")
		}
		texts = append(texts, i.Load(t.Context(), request(owner, "f")).Error())
	}
	if texts[0] != texts[1] {
		t.Errorf("%q", texts)
	}
}

// Long errors, which a tenant can cause with any number of objects, aren't kept.
func TestLongFailuresArentKept(t *testing.T) {
	i := NewInventory(nil, "")
	for _, length := range []int{maxKept / 2, maxKept + 1} {
		request := &gobpfman.LoadRequest{Uuid: new(fmt.Sprint(length)), Metadata: map[string]string{v1alpha1.MetadataLoad: "load"}}
		text := strings.Repeat("x", length)
		if got := status.Convert(i.loadFailure(rust{}, request, status.Error(codes.Aborted, text))).Message(); got != text {
			t.Errorf("an error of %d bytes has %d", length, len(got))
		}
	}
	if got := i.failures.Len(); got != 1 {
		t.Errorf("%d errors are kept, want the short one", got)
	}
}

func FuzzNormal(f *testing.F) {
	f.Add(`status: Aborted, message: "names [\"b\", \"a\"]", details: []`)
	f.Add("verification time 31 usec")
	f.Add("4: r1 = 0xffff888267bffa00 map id 7")
	f.Add("map id 0map id 7")
	f.Fuzz(func(t *testing.T, text string) {
		once := status.Convert((rust{}).refusal(status.Error(codes.Aborted, text))).Message()
		if wrapped.MatchString(once) {
			t.Skip() // a status in a status in a status
		}
		if twice := status.Convert((rust{}).refusal(status.Error(codes.Aborted, once))).Message(); len(twice) > len(once) {
			t.Errorf("%q becomes %q", once, twice)
		}
	})
}
