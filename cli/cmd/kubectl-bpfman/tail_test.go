// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/golden"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/inventory"
	"github.com/bpfman/bpfman-operator/internal/live"
)

// tailOf returns what a command prints if the inspectors of two nodes write these lines. The programs of the first node are
// attached in one pod only.
func tailOf(t *testing.T, o tailOptions, lines ...func(first, second *tailedNode) error) string {
	t.Helper()
	streams, _, out, messages := genericiooptions.NewTestIOStreams()
	all := &tailing{options: o, streams: streams, nodes: 2, awaited: 2, end: func() { out.WriteString("(ended)\n") }}
	first := &tailedNode{tailing: all, name: "worker-1", only: func(uint32) inventory.Place {
		return inventory.Place{Namespace: "shop", Pod: "web-0", Container: "app"}
	}}
	second := &tailedNode{tailing: all, name: "worker-2", only: func(uint32) (none inventory.Place) { return none }}
	for _, line := range lines {
		if err := line(first, second); err != nil {
			t.Fatal(err)
		}
	}
	return out.String() + "--- messages\n" + messages.String()
}

// on1 and on2 have a node's inspector write a line.
func on1(line live.TailLine) func(first, second *tailedNode) error {
	return func(first, _ *tailedNode) error { return first.take(line) }
}

func on2(line live.TailLine) func(first, second *tailedNode) error {
	return func(_, second *tailedNode) error { return second.take(line) }
}

func sent(second int, typ, value string, fits ...string) live.TailLine {
	return live.TailLine{Event: &live.Event{
		Time: time.Date(2026, 11, 29, 6, 30, second, 1_500_000, time.FixedZone("CET", 3600)),
		Type: typ, Value: json.RawMessage(value), Length: 28, Fits: fits,
	}}
}

func TestTail(t *testing.T) {
	t.Parallel()
	buffer := live.TailLine{Map: &live.Map{ID: 42, Name: "kill_events", Type: "ringbuf", MaxEntries: 4096}}
	reloaded := live.TailLine{Map: &live.Map{ID: 57, Name: "kill_events", Type: "ringbuf", MaxEntries: 4096}}
	neglected := live.TailLine{Neglected: &live.Neglected{Bytes: 4080}}
	event := `{"pid":4646,"target":1,"signal":18,"process":"bash"}`
	usual := []func(first, second *tailedNode) error{
		on1(buffer), on2(buffer),
		on1(sent(1, "kill_event", event)),
		on2(sent(2, "kill_event", event)),
		on1(live.TailLine{Overwritten: 360}),
		on1(sent(3, "kill_event", `{"pid":1,"process":"evil`+"\x9b"+`[2J"}`)),
		on2(neglected),
		on1(reloaded),
		on1(sent(4, "kill_event", event)),
	}
	for name, c := range map[string]struct {
		options tailOptions
		lines   []func(first, second *tailedNode) error
	}{
		"tail.txt":   {lines: usual},
		"tail.jsonl": {tailOptions{format: "json"}, usual},
		"tail.yaml":  {tailOptions{format: "yaml"}, usual},
		"tail-limit.txt": {tailOptions{limit: 2, unread: true}, []func(first, second *tailedNode) error{
			on1(buffer), on2(buffer), on2(neglected),
			on1(sent(1, "kill_event", event)), on2(sent(2, "kill_event", event)), on1(sent(3, "kill_event", event)), on2(neglected),
		}},
		"tail-no-type.txt": {lines: []func(first, second *tailedNode) error{
			on1(buffer), on2(buffer), on1(sent(1, "", `"0x2612"`)), on1(sent(2, "", `"0x2613"`)), on2(sent(3, "", `"0x2614"`)),
		}},
		"tail-several-types.txt": {lines: []func(first, second *tailedNode) error{
			on1(buffer), on2(buffer), on2(sent(1, "", `"0x2612"`, "kill_event", "evil\x1b[2J")), on2(sent(2, "", `"0x2613"`, "kill_event", "other")),
		}},
		"tail-failed.txt": {lines: []func(first, second *tailedNode) error{
			on1(buffer),
			func(_, second *tailedNode) error {
				why := errors.New("node worker-2: the inspector is older than this command")
				if err := second.ended(why); !errors.Is(err, why) {
					return fmt.Errorf("it ended with %w", err)
				}
				return nil
			},
			on1(sent(1, "kill_event", event)),
			func(first, _ *tailedNode) error { return first.ended(nil) },
		}},
		"tail-long-type.txt": {tailOptions{typ: "exec_event"}, []func(first, second *tailedNode) error{
			on1(buffer), on2(buffer), on2(sent(1, "", `"0x2612"`)),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			golden.Assert(t, tailOf(t, c.options, c.lines...), name)
		})
	}
}

// The pod is looked up again after a while, and for another map.
func TestTailPod(t *testing.T) {
	t.Parallel()
	var lookups []uint32
	n := &tailedNode{tailing: &tailing{streams: genericiooptions.NewTestIOStreamsDiscard()}, name: "worker-1", only: func(id uint32) (none inventory.Place) {
		lookups = append(lookups, id)
		return none
	}}
	for _, line := range []live.TailLine{
		{Map: &live.Map{ID: 42}},
		sent(1, "a", "{}"),
		sent(2, "a", "{}"),
		{Map: &live.Map{ID: 57}},
		sent(3, "a", "{}"),
	} {
		if err := n.take(line); err != nil {
			t.Fatal(err)
		}
	}
	n.asked = n.asked.Add(-2 * podPace)
	if err := n.take(sent(4, "a", "{}")); err != nil {
		t.Fatal(err)
	}
	if len(lookups) != 3 || lookups[0] != 42 || lookups[1] != 57 || lookups[2] != 57 {
		t.Errorf("asked for the pods of the maps %d", lookups)
	}
}

func TestTailArguments(t *testing.T) {
	t.Parallel()
	for arguments, want := range map[string]string{
		"":                                      "name an object, and its map if it has several, such as tcxprogram/counter packets, or a map by --node and --map-id",
		"tcxprogram/a .bss":                     ".bss has global variables, which aren't events: to show them, use kubectl bpfman dump",
		"tcxprogram/a m --map-id 1 --node n":    "--map-id takes one --node, and no object",
		"--map-id 1":                            "--map-id takes one --node, and no object",
		"--map-id 1 --node n --limit -1":        "--limit and --for must not be negative",
		"--map-id 1 --node n --for -1s":         "--limit and --for must not be negative",
		"--map-id 1 --node n -o wide":           `--output: "wide" is not one of json, yaml`,
		"tcxprogram/a m n":                      "3 arguments are too many or too few",
		"--map-id 1 --node n --limit 1 -o json": "namespace bpfman has no pods of the node components",
	} {
		got := executed(t, nil, append([]string{"tail"}, strings.Fields(arguments)...)...)
		if !strings.HasPrefix(got, "error: "+want) {
			t.Errorf("tail %s: %s, want %s", arguments, got, want)
		}
	}
}

// The name of an object's only map can be left out, and a misspelled one is suggested.
func TestNameOfMap(t *testing.T) {
	t.Parallel()
	// The map is known then.
	const asked = "the inspector is turned off: set bpfman.inspector.enabled to true in the ConfigMap bpfman-config"
	for name, c := range map[string]struct {
		maps  map[string]string
		given []string
		want  string
	}{
		"the only one":    {map[string]string{"packets": "/p"}, nil, asked},
		"one of several":  {map[string]string{"packets": "/p", "bytes": "/b"}, []string{"bytes"}, asked},
		"several":         {map[string]string{"packets": "/p", "bytes": "/b"}, nil, "tcxprogram/counter has several maps: name one of bytes, packets"},
		"none":            {nil, nil, "tcxprogram/counter has no map: it has none, and possibly global variables, such as .bss"},
		"a misspelled":    {map[string]string{"packets": "/p", "bytes": "/b"}, []string{"packtes"}, `tcxprogram/counter has no map "packtes": it has bytes, packets, and possibly global variables, such as .bss; did you mean packets?`},
		"nothing similar": {map[string]string{"packets": "/p"}, []string{"x"}, `tcxprogram/counter has no map "x": it has packets, and possibly global variables, such as .bss`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := everything()
			for _, o := range objects {
				if report, is := o.(*v1alpha1.BpfProgram); is {
					report.Spec.Maps = c.maps
				}
			}
			for _, command := range []string{"dump", "tail"} {
				got := executed(t, objects, append([]string{command, "tcxprogram/counter"}, c.given...)...)
				if got != "error: "+c.want+"\n" {
					t.Errorf("%s: %s, want %s", command, got, c.want)
				}
			}
		})
	}
}
