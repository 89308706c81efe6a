// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package contract

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/inspector/kernel"
	"github.com/bpfman/bpfman-operator/internal/bpfman"
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
	place, file := newPlaceWithPins(t), filepath.Join(t.TempDir(), "former.json")
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

// The former or the new daemon is killed during a call, with the agent, which hasn't reported anything. In the end, each program
// is attached once.
func TestKilledAtTheChange(t *testing.T) {
	other := os.Getenv(otherVariable)
	if other == "" {
		prerequisite.Missing(t, otherVariable+" isn't set to the path of another daemon", prerequisite.OtherDaemon)
	}
	for direction, binaries := range map[string][2]string{"to": {other, daemontest.Binary(t)}, "from": {daemontest.Binary(t), other}} {
		for _, call := range []string{"Load", "Attach"} {
			for event, of := range map[string]func(root string) any{"pinned": pinsIn, "written": databaseIn} {
				for _, killed := range []string{"former", "new"} {
					t.Run(strings.Join([]string{direction, killed, call, event}, " "), func(t *testing.T) {
						c := &changing{t: t, place: newPlaceWithPins(t), file: filepath.Join(t.TempDir(), "former"), call: call, state: of}
						daemons := []string{binaries[0]}
						if killed == "new" {
							c.start(binaries[0])
							must.Succeed(t, c.converge())
							c.real.Kill()
							daemons = binaries[1:]
						}
						c.interrupt(daemons[0])
						c.finish(binaries[1], killed == "new")
					})
				}
			}
		}
	}
}

// changing is a node whose daemon is changed.
type changing struct {
	t     *testing.T
	place *daemontest.Place
	file  string
	// call is the one during which a daemon is killed, when the state changes.
	call  string
	state func(root string) any

	real      *daemontest.Real
	inventory *daemon.Inventory
}

// newPlaceWithPins has the pins' file system mounted, as by the agent's init container. Each daemon would mount its own.
func newPlaceWithPins(t *testing.T) *daemontest.Place {
	t.Helper()
	place := daemontest.NewPlace(t)
	mount := place.InMounts(t.Context(), "sh", "-c", "mkdir -p /run/bpfman/fs && mount -t bpf none /run/bpfman/fs")
	if out, err := mount.CombinedOutput(); err != nil {
		t.Fatalf("mount: %v: %s", err, out)
	}
	return place
}

// pinsIn returns the number of pins of programs and links.
func pinsIn(root string) any {
	found := 0
	for _, pattern := range []string{"prog_*", "links/*", "tcx-*/link_*"} {
		pins, _ := filepath.Glob(filepath.Join(root, "/run/bpfman/fs", pattern))
		found += len(pins)
	}
	return found
}

// databaseIn returns what changes when a daemon writes to its database.
func databaseIn(root string) any {
	written := ""
	files, _ := filepath.Glob(filepath.Join(root, "/run/bpfman/db/*"))
	for _, file := range files {
		if info, err := os.Stat(file); err == nil {
			written += fmt.Sprint(filepath.Base(file), info.Size(), info.ModTime())
		}
	}
	return written
}

// start starts a daemon and an agent.
func (c *changing) start(binary string) {
	c.t.Helper()
	c.real = c.place.Start(c.t, binary)
	c.inventory = daemon.NewInventory(c.real.Client, c.place.Path("/"))
	must.Succeed(c.t, c.inventory.RecordFormer(c.file, "/proc"))
	if _, err := c.inventory.Refresh(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
}

// interrupt starts a daemon and an agent, which are killed during the call.
func (c *changing) interrupt(binary string) {
	c.t.Helper()
	c.start(binary)
	load := func() error {
		return c.inventory.Load(c.t.Context(), request(c.t, "tcx_test", tcx("tcx_pass"), tcx("tcx_next")))
	}
	called := load
	if c.call == "Attach" {
		must.Succeed(c.t, load())
		called = func() error {
			return c.inventory.Attach(c.t.Context(), byFunction(c.inventory.Of(owner))["tcx_pass"].ID, onLoopback("ingress"))
		}
	}
	before, ended := c.state(c.place.Path("/")), make(chan error, 1)
	go func() { ended <- called() }()
	for c.state(c.place.Path("/")) == before {
		select {
		case err := <-ended:
			c.t.Logf("%s ended before: %v", c.call, err)
			ended <- err
			c.real.Kill()
			return
		default:
		}
	}
	c.real.Kill()
	c.t.Logf("%s: %v", c.call, <-ended)
}

// converge has the functions loaded and attached once, as the agent does.
func (c *changing) converge() error {
	ctx := c.t.Context()
	if _, err := c.inventory.Refresh(ctx); err != nil {
		return err
	}
	if loaded := c.inventory.Of(owner); len(loaded) != 2 || len(byFunction(loaded)) != 2 {
		for _, p := range loaded {
			if err := c.inventory.Unload(ctx, p.ID); err != nil {
				return err
			}
		}
		if err := c.inventory.Load(ctx, request(c.t, "tcx_test", tcx("tcx_pass"), tcx("tcx_next"))); err != nil {
			return err
		}
	}
	for _, p := range c.inventory.Of(owner) {
		attached := false
		for id, known := range p.Links {
			if known != (daemon.Link{}) {
				attached = true
			} else if err := c.inventory.Detach(ctx, p.ID, id); err != nil {
				return err
			}
		}
		if attached {
			continue
		}
		if err := c.inventory.Attach(ctx, p.ID, onLoopback("ingress")); err != nil {
			return err
		}
	}
	return c.inventory.Retire(ctx, owner, func(string) bool { return true })
}

// finish starts a daemon and an agent, and checks what is attached in the end. Clean means that nothing else may be left.
func (c *changing) finish(binary string, clean bool) {
	c.t.Helper()
	c.start(binary)
	err := eventually.Succeeds(c.t.Context(), 20*time.Second, 50*time.Millisecond, func(context.Context) error {
		if err := c.converge(); err != nil { //nolint:contextcheck // it has the test's context
			return err
		}
		var want []uint32
		for _, p := range c.inventory.Of(owner) {
			want = append(want, p.ID)
		}
		if got := c.onLoopback(); len(want) != 2 || !slices.Equal(got, want) {
			return fmt.Errorf("programs %v are attached, want %v", got, want)
		}
		// What one of the daemons pinned in a Load that was interrupted stays for minutes: the agent can't know that nobody is
		// loading it.
		loads := c.inventory.Daemon() == bpfman.Go && c.call == "Load"
		if got := pinsIn(c.place.Path("/")); clean && got != 4 && (!loads || got != 5) {
			return fmt.Errorf("%d pins, want those of two programs with a link each", got)
		}
		return nil
	})
	must.Succeed(c.t, err)
}

// onLoopback returns the programs in the kernel's chain there, by ascending ID.
func (c *changing) onLoopback() []uint32 {
	c.t.Helper()
	var ids []uint32
	must.Succeed(c.t, c.place.InNetwork(func() error {
		chain, err := link.QueryPrograms(link.QueryOptions{Target: 1, Attach: ebpf.AttachTCXIngress})
		if err != nil {
			return err
		}
		for _, p := range chain.Programs {
			ids = append(ids, uint32(p.ID))
		}
		return nil
	}))
	slices.Sort(ids)
	return ids
}

// A daemon that is killed during Attach can leave a link that it doesn't know. It doesn't stay attached when its program is
// unloaded.
func TestForgottenLink(t *testing.T) {
	c := &changing{t: t, place: newPlaceWithPins(t), file: filepath.Join(t.TempDir(), "former")}
	binary, database := daemontest.Binary(t), c.place.Path("/run/bpfman/db")
	c.start(binary)
	must.Succeed(t, c.inventory.Load(t.Context(), request(t, "tcx_test", tcx("tcx_pass"))))
	id := c.inventory.Of(owner)[0].ID
	c.real.Kill()
	earlier := t.TempDir()
	copyInto := func(to, from string) { // with the files' times, which say what is of this database
		if out, err := exec.CommandContext(t.Context(), "cp", "-a", from+"/.", to).CombinedOutput(); err != nil {
			t.Fatalf("cp: %v: %s", err, out)
		}
	}
	copyInto(earlier, database)

	c.start(binary)
	must.Succeed(t, c.inventory.Attach(t.Context(), id, onLoopback("ingress")))
	c.real.Kill()
	entries, err := os.ReadDir(database)
	must.Succeed(t, err)
	for _, entry := range entries {
		must.Succeed(t, os.RemoveAll(filepath.Join(database, entry.Name())))
	}
	copyInto(database, earlier)

	c.start(binary)
	if got := c.inventory.Of(owner); len(got) != 1 || len(got[0].Links) > 0 {
		t.Errorf("the daemon has %+v, and %v are attached", got, c.onLoopback())
	}
	must.Succeed(t, c.inventory.Unload(t.Context(), id))
	must.Succeed(t, eventually.Succeeds(t.Context(), 10*time.Second, 50*time.Millisecond, func(ctx context.Context) error {
		if _, err := c.inventory.Refresh(ctx); err != nil {
			return err
		}
		if left, pins := c.onLoopback(), pinsIn(c.place.Path("/")); len(left) > 0 || pins != 0 {
			return fmt.Errorf("%v are attached, and there are %d pins", left, pins)
		}
		return nil
	}))
}
