// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/bpfman/bpfman-operator/agent/confirm"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// confirming restarts the agent so that it confirms changes, by requests to the API server. The node can't reach that while the
// program bad is attached.
func (n *node) confirming() {
	n.t.Helper()
	n.crash()
	n.confirm, n.proc = 500*time.Millisecond, n.t.TempDir()
	n.boot("first")
	n.setCut(func() bool {
		return slices.ContainsFunc(n.daemon.Programs(), func(p daemontest.Loaded) bool { return p.Function == "bad" && len(p.Links) > 0 })
	})
	n.startAgent()
}

// boot sets the ID of the node's boot.
func (n *node) boot(id string) {
	n.t.Helper()
	dir := filepath.Join(n.proc, "sys/kernel/random")
	must.Succeed(n.t, errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "boot_id"), []byte(id), 0o600)))
}

// runs waits until the daemon holds nothing but these programs: function and interface.
func (n *node) runs(want ...string) {
	n.t.Helper()
	n.eventually("the node's programs", func() error {
		var got []string
		for _, p := range n.daemon.Programs() {
			for _, l := range p.Links {
				got = append(got, p.Function+" "+l.GetTcxAttachInfo().GetIface())
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Errorf("the daemon holds %q, not %q", got, want)
		}
		return nil
	})
}

// confirmed waits until the node has confirmed the current version of an object.
func (n *node) confirmed(version int64) {
	n.t.Helper()
	n.eventually("the confirmation", func() error {
		files, err := filepath.Glob(filepath.Join(n.changes, "*.json"))
		if err != nil || len(files) != 1 {
			return fmt.Errorf("%q, %w", files, err)
		}
		text, err := os.ReadFile(files[0])
		if err != nil {
			return err
		}
		var file struct {
			Record struct {
				Confirmed *confirm.Version `json:"confirmed"`
				Tried     any              `json:"tried"`
			} `json:"record"`
		}
		if err := json.Unmarshal(text, &file); err != nil {
			return err
		}
		if file.Record.Confirmed == nil || file.Record.Confirmed.Generation() != version || file.Record.Tried != nil {
			return fmt.Errorf("the record is %s", text)
		}
		return nil
	})
}

// firewall creates an object with a version that is confirmed.
func (n *node) firewall() *v1alpha1.TcxProgram {
	n.t.Helper()
	o := n.tcx("firewall-"+n.name, nil, "eth0")
	o.Spec.BpfFunctionName = "good"
	o.Spec.ByteCode = v1alpha1.BytecodeSelector{Image: &v1alpha1.BytecodeImage{Url: "quay.io/test/firewall:v1", ImagePullPolicy: v1alpha1.PullAlways}}
	n.create(o)
	n.says(o.Name, v1alpha1.BpfProgCondLoaded, "")
	n.confirmed(1)
	return o
}

// A version after which the node can't reach the API server is rolled back, and isn't tried again until the object
// changes.
func TestRollback(t *testing.T) {
	n := start(t)
	n.confirming()
	o := n.firewall()
	n.change(o, func() { o.Spec.BpfFunctionName, o.Spec.ByteCode.Image.Url = "bad", "quay.io/test/firewall:v2" })
	n.says(o.Name, v1alpha1.BpfProgCondRolledBack, "generation 1 runs again; this node doesn't try generation 2 again until")
	n.runs("good eth0")
	n.event(o.Name, "RolledBack", fmt.Sprintf("this node got no response from the API server for %s after generation 2 was attached, and got one after the rollback", n.confirm))

	n.crash()
	n.startAgent()
	beside := n.tcx("beside-"+n.name, nil, "eth1")
	n.create(beside)
	n.says(beside.Name, v1alpha1.BpfProgCondNotLoaded, "eth1") // the agent works
	n.runs("good eth0")
	n.says(o.Name, v1alpha1.BpfProgCondRolledBack, "generation 1 runs again")

	n.change(o, func() { o.Spec.BpfFunctionName = "fixed" })
	n.says(o.Name, v1alpha1.BpfProgCondLoaded, "")
	n.runs("fixed eth0")
	n.confirmed(3)

	n.delete(o)
	n.runs()
	n.eventually("the record's end", func() error {
		files, err := filepath.Glob(filepath.Join(n.changes, "*.json"))
		if err == nil && len(files) > 0 {
			err = fmt.Errorf("there is %s", files[0])
		}
		return err
	})
}

// Where nothing ran before, nothing runs again. A restart of the object tries it again.
func TestRollbackOfTheFirstVersion(t *testing.T) {
	n := start(t)
	n.confirming()
	o := n.tcx("first-version", nil, "eth0")
	o.Spec.BpfFunctionName = "bad"
	n.create(o)
	n.says(o.Name, v1alpha1.BpfProgCondRolledBack, "nothing runs instead; this node doesn't try generation 1 again")
	n.runs()
	isBad := n.cut
	n.setCut(func() bool { return false })
	n.change(o, func() { o.Annotations = map[string]string{v1alpha1.AnnotationRestartedAt: "2026-01-01T00:00:00Z"} })
	n.says(o.Name, v1alpha1.BpfProgCondLoaded, "")
	n.runs("bad eth0")
	n.setCut(isBad)
}

// After a reboot within the time limit, what wasn't confirmed doesn't run, although the API server can't be reached.
func TestRollbackAfterReboot(t *testing.T) {
	n := start(t)
	n.confirming()
	o := n.firewall()
	limit := n.confirm
	n.crash()
	n.confirm = time.Hour
	n.startAgent()
	n.change(o, func() { o.Spec.BpfFunctionName = "bad" })
	n.runs("bad eth0")
	n.boot("second")
	n.confirm = limit
	off := n.cut
	n.setCut(func() bool { return true })
	n.reboot()
	n.runs("good eth0")
	n.setCut(off)
	n.says(o.Name, v1alpha1.BpfProgCondRolledBack, "this node restarted before the API server had confirmed generation 2: generation 1 runs again")
}

// A crash of the agent at any call of the daemon ends in the same state, although the new agent can't reach the API
// server while the bad version is attached.
func TestCrashesDuringARollback(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.confirming()
	o := n.firewall()
	c := &crashing{node: n}
	n.daemon.SetFault(func(call string, _ proto.Message, done bool) error {
		if c.now(call, done) {
			return errors.New("the agent has crashed")
		}
		return nil
	})
	function := "good"
	for k := 1; ; k++ {
		c.arm(k)
		n.change(o, func() { o.Spec.BpfFunctionName = "bad" })
		rolledBack := false
		for !rolledBack {
			n.eventually("a crash or the rollback", func() error {
				select {
				case <-c.alarm:
					return nil
				default:
				}
				if err := n.isRolledBack(o); err != nil {
					return err
				}
				rolledBack = true
				return nil
			})
			if !rolledBack {
				n.crash()
				c.mu.Lock()
				c.dead, c.alarm = false, make(chan struct{})
				c.mu.Unlock()
				n.startAgent()
			}
		}
		n.says(o.Name, v1alpha1.BpfProgCondRolledBack, "runs again")
		n.runs(function + " eth0")
		at := c.disarm()
		function = fmt.Sprint("good", k)
		n.change(o, func() { o.Spec.BpfFunctionName = function })
		n.runs(function + " eth0")
		n.confirmed(o.Generation)
		if at == "" {
			break
		}
		t.Logf("crashed at %s", at)
	}
}

// isRolledBack checks the object's report.
func (n *node) isRolledBack(o *v1alpha1.TcxProgram) error {
	for _, report := range n.programs() {
		if c := report.GetStatus().Conditions; report.GetStatus().OwnerGeneration == o.Generation && len(c) > 0 && c[0].Type == string(v1alpha1.BpfProgCondRolledBack) {
			return nil
		}
	}
	return errors.New("it isn't rolled back")
}
