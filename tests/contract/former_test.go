// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package contract

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/inspector/kernel"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/tests/eventually"
	"github.com/bpfman/bpfman-operator/tests/must"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// otherVariable names the binary of the other daemon.
const otherVariable = "BPFMAN_OTHER_RPC"

// attached returns which of the programs have a link in the kernel.
func attached(t *testing.T, programs ...uint32) []uint32 {
	t.Helper()
	ids, err := kernel.List()
	must.Succeed(t, err)
	links := &kernel.Links{}
	var found []uint32
	for _, l := range ids.Links {
		if read, err := links.Read(l); err == nil && slices.Contains(programs, read.Program) && !slices.Contains(found, read.Program) {
			found = append(found, read.Program)
		}
	}
	slices.Sort(found)
	return found
}

// When the daemon of a node was changed, each program of the former one is detached when its successor is attached, and not
// before. Those of others stay, and so does the former database, until they are gone. An agent that starts again at any step
// goes on.
func TestDaemonIsChanged(t *testing.T) {
	other := os.Getenv(otherVariable)
	if other == "" {
		prerequisite.Missing(t, otherVariable+" isn't set to the path of another daemon", prerequisite.OtherDaemon)
	}
	for name, binaries := range map[string][2]string{"to": {other, daemontest.Binary(t)}, "from": {daemontest.Binary(t), other}} {
		t.Run(name, func(t *testing.T) { change(t, binaries[0], binaries[1]) })
	}
}

func change(t *testing.T, from, to string) {
	t.Helper()
	place, file := daemontest.NewPlace(t), filepath.Join(t.TempDir(), "former.json")
	// As the agent's init container does. Each daemon would mount its own.
	mount := place.InMounts(t.Context(), "sh", "-c", "mkdir -p /run/bpfman/fs && mount -t bpf none /run/bpfman/fs")
	if out, err := mount.CombinedOutput(); err != nil {
		t.Fatalf("mount: %v: %s", err, out)
	}
	former := place.Start(t, from)
	n := &node{t: t, client: former.Client, root: place.Path("/"), real: former}
	i := n.inventory()
	must.Succeed(t, i.Load(t.Context(), request(t, "tcx_test", tcx("tcx_pass"), tcx("tcx_next"))))
	old := byFunction(i.Of(owner))
	for _, p := range old {
		must.Succeed(t, i.Attach(t.Context(), p.ID, onLoopback("ingress")))
	}
	foreign := request(t, "tcx_test", tcx("tcx_pass"))
	foreign.Metadata = nil
	answer, err := former.Client.Load(t.Context(), foreign)
	must.Succeed(t, err)
	others := answer.GetPrograms()[0].GetKernelInfo().GetId()
	_, err = former.Client.Attach(t.Context(), &gobpfman.AttachRequest{Id: others, Attach: onLoopback("egress").Info})
	must.Succeed(t, err)
	former.Kill()

	now := place.Start(t, to)
	n.client, n.real = now.Client, now
	// start is an agent that starts, and reads its reports.
	start := func(reports ...daemon.Former) *daemon.Inventory {
		t.Helper()
		i := daemon.NewInventory(n.client, n.root)
		must.Succeed(t, i.RecordFormer(file, "/proc"))
		if _, err := i.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, f := range reports {
			must.Succeed(t, i.Inherit(f))
		}
		return i
	}
	expect := func(what string, want ...uint32) {
		t.Helper()
		slices.Sort(want)
		all := []uint32{old["tcx_pass"].ID, old["tcx_next"].ID, others}
		err := eventually.Succeeds(t.Context(), 10*time.Second, 10*time.Millisecond, func(context.Context) error {
			if got := attached(t, all...); !slices.Equal(got, want) {
				return fmt.Errorf("%s: %v are attached, want %v", what, got, want)
			}
			return nil
		})
		must.Succeed(t, err)
	}
	i = start(daemon.Former{Owner: owner, Function: "tcx_pass", ID: old["tcx_pass"].ID}, daemon.Former{Owner: owner, Function: "tcx_next", ID: old["tcx_next"].ID})
	if got := i.Of(owner); len(got) > 0 {
		t.Fatalf("the new daemon lists %+v", got)
	}
	must.Succeed(t, i.Load(t.Context(), request(t, "tcx_test", tcx("tcx_pass"), tcx("tcx_next"))))
	expect("nothing is detached yet", old["tcx_pass"].ID, old["tcx_next"].ID, others)
	i = start() // the report has the new program already
	must.Succeed(t, i.Attach(t.Context(), byFunction(i.Of(owner))["tcx_pass"].ID, onLoopback("ingress")))
	expect("the program with a successor is detached", old["tcx_next"].ID, others)
	i = start()
	none := func(string) bool { return false }
	must.Succeed(t, i.Retire(t.Context(), owner, none))
	expect("the other one stays while its successor isn't attached", old["tcx_next"].ID, others)
	rebooted := daemon.NewInventory(n.client, n.root)
	proc := t.TempDir()
	must.Succeed(t, os.MkdirAll(filepath.Join(proc, "sys/kernel/random"), 0o700))
	must.Succeed(t, os.WriteFile(filepath.Join(proc, "sys/kernel/random/boot_id"), []byte("another"), 0o600))
	must.Succeed(t, rebooted.RecordFormer(file, proc))
	must.Succeed(t, rebooted.Retire(t.Context(), owner, func(string) bool { return true }))
	expect("a record from before the node restarted removes nothing", old["tcx_next"].ID, others)
	must.Succeed(t, i.Retire(t.Context(), owner, func(string) bool { return true }))
	expect("only others' programs stay", others)

	start()
	left := func() int {
		files, _ := filepath.Glob(n.root + "/run/bpfman/db/*")
		return len(files)
	}
	both := left()
	for _, pattern := range []string{"prog_", "maps/"} {
		must.Succeed(t, os.RemoveAll(filepath.Join(n.root, "/run/bpfman/fs", pattern+strconv.Itoa(int(others)))))
	}
	start()
	if left() >= both {
		t.Errorf("%d files of databases, %d before nothing needed the former one", left(), both)
	}
	if got := byFunction(start().Of(owner)); len(got) != 2 || len(got["tcx_pass"].Links) != 1 {
		t.Errorf("in the end, the daemon has %+v", got)
	}
}
