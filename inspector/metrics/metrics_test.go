// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package metrics

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// kernel is a Kernel with the given run statistics of programs.
type kernel map[uint32]ran

func (k kernel) runs(id uint32) (uint64, time.Duration, error) {
	r, there := k[id]
	if !there {
		return 0, 0, os.ErrNotExist
	}
	return r.count, r.total, nil
}

func memory(id uint32) (uint64, error) {
	if id == 13 {
		return 0, errors.New("it has gone")
	}
	return uint64(id) * 1000, nil
}

func node() *v1alpha1.BpfNodeStatus {
	flows := &v1alpha1.BpfNodeOwner{Kind: "TcxProgram", Namespace: "acme", Name: "flows"}
	return &v1alpha1.BpfNodeStatus{
		Programs: []v1alpha1.BpfNodeProgram{
			{ID: 1, Type: "sched_cls", Name: "count", Bpfman: true, Owner: flows, MapIDs: []uint32{10, 11}},
			{ID: 2, Type: "ext", Name: "xdp_dispatcher", Bpfman: true},
			{ID: 3, Type: "sched_cls", Name: "from_netdev", MapIDs: []uint32{11, 12, 13}, Holders: []v1alpha1.BpfNodeHolder{
				{Path: "/sys/fs/bpf/tc"}, {PID: 7, Process: "cilium-agent", Namespace: "kube-system", Pod: "cilium-x"},
			}},
			{ID: 4, Type: "cgroup_device", Holders: []v1alpha1.BpfNodeHolder{{PID: 1, Process: "systemd", Unit: "init.scope"}}},
			{ID: 5, Type: "tracing", Name: "other", Holders: []v1alpha1.BpfNodeHolder{{PID: 9, Process: "other"}}},
			{ID: 6, Type: "tracing", Name: "pinned", Holders: []v1alpha1.BpfNodeHolder{{Path: "/sys/fs/bpf/p"}}},
		},
		Maps:      []v1alpha1.BpfNodeMap{{ID: 10}, {ID: 11}, {ID: 12}, {ID: 13}, {ID: 14}},
		Conflicts: []v1alpha1.BpfNodeConflict{{Type: v1alpha1.BpfNodeUnownedProgram}},
	}
}

func compare(t *testing.T, c prometheus.Collector, want string, names ...string) {
	t.Helper()
	if err := testutil.CollectAndCompare(c, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.CollectAndLint(c); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
}

func TestGauges(t *testing.T) {
	c := New(Kernel{MapMemory: memory})
	compare(t, c, "") // before the first status
	c.Update(node())
	compare(t, c, `
# HELP bpf_conflicts Number of conflicts that prevent, or could prevent, programs of bpfman from working, by type.
# TYPE bpf_conflicts gauge
bpf_conflicts{type="DispatcherFull"} 0
bpf_conflicts{type="EarlierInChain"} 0
bpf_conflicts{type="EventNearLimit"} 0
bpf_conflicts{type="ForeignXDP"} 0
bpf_conflicts{type="NamespacedEarlierInChain"} 0
bpf_conflicts{type="UnownedProgram"} 1
# HELP bpf_map_memory_bytes Memory of maps in bytes, by the object that their program was loaded for or the program's holder.
# TYPE bpf_map_memory_bytes gauge
bpf_map_memory_bytes{holder="",owner_kind="",owner_name="",owner_namespace=""} 14000
bpf_map_memory_bytes{holder="",owner_kind="TcxProgram",owner_name="flows",owner_namespace="acme"} 21000
bpf_map_memory_bytes{holder="pod kube-system/cilium-x",owner_kind="",owner_name="",owner_namespace=""} 12000
# HELP bpf_programs Number of programs in the kernel, by type, and by the object that they were loaded for or their holder.
# TYPE bpf_programs gauge
bpf_programs{holder="",owner_kind="TcxProgram",owner_name="flows",owner_namespace="acme",type="sched_cls"} 1
bpf_programs{holder="bpfman",owner_kind="",owner_name="",owner_namespace="",type="ext"} 1
bpf_programs{holder="pinned",owner_kind="",owner_name="",owner_namespace="",type="tracing"} 1
bpf_programs{holder="pod kube-system/cilium-x",owner_kind="",owner_name="",owner_namespace="",type="sched_cls"} 1
bpf_programs{holder="process other",owner_kind="",owner_name="",owner_namespace="",type="tracing"} 1
bpf_programs{holder="unit init.scope",owner_kind="",owner_name="",owner_namespace="",type="cgroup_device"} 1
`)
}

// Programs that share a series are loaded and unloaded. The counter never decreases. It begins with 0, so that a restart
// of the inspector doesn't look as if programs had run as often as in their whole life.
func TestRunsNeverFall(t *testing.T) {
	k := kernel{1: {100, time.Second}, 2: {1, time.Millisecond}}
	two := func(ids ...uint32) *v1alpha1.BpfNodeStatus {
		status := &v1alpha1.BpfNodeStatus{}
		for _, id := range ids {
			status.Programs = append(status.Programs, v1alpha1.BpfNodeProgram{ID: id, Name: "f", Type: "xdp", Holders: []v1alpha1.BpfNodeHolder{{PID: 3, Process: "p"}}})
		}
		return status
	}
	c := New(Kernel{Runs: k.runs, MapMemory: memory})
	expect := func(runs, seconds string) {
		t.Helper()
		labels := `{holder="process p",owner_kind="",owner_name="",owner_namespace="",program="f"} `
		rest := `{holder="other",owner_kind="",owner_name="",owner_namespace="",program=""} 0` + "\n"
		compare(t, c, "# HELP bpf_program_run_seconds_total Run time of programs in seconds, while the kernel measures it.\n# TYPE bpf_program_run_seconds_total counter\n"+
			"bpf_program_run_seconds_total"+rest+"bpf_program_run_seconds_total"+labels+seconds+
			"\n# HELP bpf_program_runs_total Number of runs of programs, while the kernel counts them.\n# TYPE bpf_program_runs_total counter\n"+
			"bpf_program_runs_total"+rest+"bpf_program_runs_total"+labels+runs+"\n", "bpf_program_run_seconds_total", "bpf_program_runs_total")
	}
	c.Update(two(1, 2))
	expect("0", "0")
	k[1] = ran{201, 2*time.Second + time.Millisecond}
	expect("101", "1.001")
	c.Update(two(2)) // the one that ran more was unloaded
	k[2] = ran{2, 2 * time.Millisecond}
	expect("102", "1.002")
	c.Update(two(2, 4)) // another was loaded
	k[4] = ran{5, time.Second}
	expect("107", "2.002")
	delete(k, 2) // unloaded since the last status
	expect("107", "2.002")
}

// The number of series is limited for any number of programs, and the sum is complete.
func TestSeriesAreBounded(t *testing.T) {
	const many = 3 * maxSeries
	k, status := kernel{}, &v1alpha1.BpfNodeStatus{}
	for id := range uint32(many) {
		status.Programs = append(status.Programs, v1alpha1.BpfNodeProgram{
			ID: id, Type: "xdp", Name: fmt.Sprint(id), MapIDs: []uint32{id}, Holders: []v1alpha1.BpfNodeHolder{{PID: 1, Process: fmt.Sprint("p", id)}},
		})
		status.Maps = append(status.Maps, v1alpha1.BpfNodeMap{ID: id})
	}
	c := New(Kernel{Runs: k.runs, MapMemory: func(uint32) (uint64, error) { return 1, nil }})
	c.Update(&v1alpha1.BpfNodeStatus{})
	sumOf(t, c, "bpf_programs") // before they are loaded
	for id := range uint32(many) {
		k[id] = ran{1, time.Duration(id) * time.Millisecond}
	}
	c.Update(status)
	for name, sum := range map[string]float64{"bpf_program_runs_total": many, "bpf_programs": many, "bpf_map_memory_bytes": many} {
		if n := testutil.CollectAndCount(c, name); n != maxSeries+1 {
			t.Errorf("%s: %d series", name, n)
		}
		if got := sumOf(t, c, name); got != sum {
			t.Errorf("%s: %v in all, want %v", name, got, sum)
		}
	}
	// A program in the rest runs longer than all others, and gets its own series.
	k[1] = ran{1000, time.Hour}
	if got := sumOf(t, c, "bpf_program_run_seconds_total"); got < time.Hour.Seconds() {
		t.Errorf("%v s in all", got)
	}
	if !c.series[programKey{ownerKey{holder: "process p1"}, "1"}].shown {
		t.Error("the one that ran most isn't shown")
	}
	if got := c.rest.total; got > time.Duration(many*many/2)*time.Millisecond {
		t.Errorf("the rest ran %v", got)
	}
}

func sumOf(t *testing.T, c prometheus.Collector, name string) float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}
