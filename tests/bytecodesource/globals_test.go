// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package bytecodesource

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// The program has the values that the object sets, of each type. A change of a value is another program, and what isn't a
// value of the variable's type isn't loaded.
func TestGlobals(t *testing.T) {
	n := start(t)
	n.Push("test/globals:v1", build(t, "globals"))
	o := &v1alpha1.TracepointProgram{ObjectMeta: metav1.ObjectMeta{Name: "globals"}}
	o.Spec.BpfFunctionName, o.Spec.Names = "show_globals", []string{"syscalls/sys_enter_kill"}
	o.Spec.NodeSelector.MatchLabels = map[string]string{"test": n.name}
	o.Spec.ByteCode = n.image("test/globals:v1", v1alpha1.PullIfNotPresent)
	o.Spec.Globals = v1alpha1.Globals{}
	for name, value := range map[string]any{
		"GLOBAL_u8": 255, "GLOBAL_u16": 8080, "GLOBAL_u32": "0xffffffff", "GLOBAL_u64": "18446744073709551615", "GLOBAL_bytes": []int{9, 8, 7},
		"GLOBAL_int": -2, "GLOBAL_bool": true, "GLOBAL_text": "eth0", "GLOBAL_list": []int{80, 443},
	} {
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		o.Spec.Globals[name] = text
	}
	o.Spec.GlobalData = v1alpha1.GlobalData{"GLOBAL_limits": {1, 0, 0, 0, 2, 0, 0, 0}}
	n.create(o)
	first := n.loaded(o)
	const minus2, highest = 1<<64 - 2, 1<<64 - 1
	want := []uint64{255, 8080, 1<<32 - 1, highest, 9, 8, 7, 0, 0, 0, 0, 0, minus2, 1, 'e', 't', 'h', '0', 0, 0, 0, 0, 80, 443, 1, 2}
	n.shows(o, want)

	n.change(o, func() { o.Spec.Globals["GLOBAL_u16"] = json.RawMessage("70000") })
	n.fails(o, v1alpha1.BpfProgCondNotLoaded, "globals.GLOBAL_u16: 70000 is too large for __u16 (0 to 65535), when loading from image ", fmt.Sprintf("(the previously loaded program %d keeps running)", first))
	n.change(o, func() { o.Spec.Globals["GLOBAL_u16"] = json.RawMessage("9090") })
	if again := n.loaded(o); again == first {
		t.Error("the program wasn't loaded again with another value")
	}
	want[1] = 9090
	n.shows(o, want)

	n.change(o, func() { o.Spec.GlobalData = v1alpha1.GlobalData{"GLOBAL_limits": {1}} })
	n.fails(o, v1alpha1.BpfProgCondNotLoaded, "globaldata.GLOBAL_limits has 1 byte, and the variable has 8 bytes")
	n.change(o, func() { o.Spec.GlobalData = v1alpha1.GlobalData{"GLOBAL_limit": {1}} })
	n.fails(o, v1alpha1.BpfProgCondNotLoaded, "symbol with name GLOBAL_limit not found", "; did you mean GLOBAL_limits?")
}

// shows waits until a program has written these values into its map.
func (n *node) shows(o *v1alpha1.TracepointProgram, want []uint64) {
	n.t.Helper()
	path := ""
	n.reports(o, "attached", func(report *v1alpha1.BpfProgram) error {
		path = report.Spec.Maps["globals_map"]
		return nil
	})
	n.eventually("the values of the variables", func(context.Context) error {
		if err := syscall.Kill(syscall.Getpid(), 0); err != nil {
			return fmt.Errorf("send no signal: %w", err)
		}
		m, err := ebpf.LoadPinnedMap(n.Path(path), nil)
		if err != nil {
			return fmt.Errorf("open the map: %w", err)
		}
		defer m.Close()
		got := make([]uint64, len(want))
		for i := range got {
			if err := m.Lookup(uint32(i), &got[i]); err != nil {
				return fmt.Errorf("read the map: %w", err)
			}
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("got %v, want %v", got, want)
		}
		return nil
	})
}
