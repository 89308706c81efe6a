// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package metrics

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// values returns the values of all metrics in a registry. For a histogram, it is the
// number of observations.
func values(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, l := range metric.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			value := metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + float64(metric.GetHistogram().GetSampleCount())
			out[fmt.Sprintf("%s{%s}", family.GetName(), strings.Join(labels, ","))] = value
		}
	}
	return out
}

func TestCallsAndRepairs(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := New(registry)
	list := &gobpfman.ListResponse{Results: []*gobpfman.ListResponse_ListResult{{Info: &gobpfman.ProgramInfo{Name: "f"}}}}
	call := func(method string, err error) {
		t.Helper()
		invoke := func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return err }
		if got := m.Call(t.Context(), "/bpfman.v1.Bpfman/"+method, nil, list, nil, invoke); got != err { //nolint:errorlint // must be the same error
			t.Errorf("%s returns %v", method, got)
		}
	}
	call("Load", nil)
	call("Load", nil)
	call("Load", status.Error(codes.Aborted, "no"))
	call("List", nil)
	call("List", status.Error(codes.Unavailable, "gone"))
	m.Repaired(2, 0)
	m.Repaired(0, 3)
	m.Read(time.Second, "read")
	m.Read(time.Second, "read")
	m.Read(time.Second, "failed")
	want := map[string]float64{
		"bpfman_agent_daemon_call_duration_seconds{call=Load,code=OK}":          2,
		"bpfman_agent_daemon_call_duration_seconds{call=Load,code=Aborted}":     1,
		"bpfman_agent_daemon_call_duration_seconds{call=List,code=OK}":          1,
		"bpfman_agent_daemon_call_duration_seconds{call=List,code=Unavailable}": 1,
		"bpfman_agent_daemon_list_bytes{}":                                      float64(proto.Size(list)),
		"bpfman_agent_drift_repaired_total{what=program}":                       2,
		"bpfman_agent_drift_repaired_total{what=link}":                          3,
		"bpfman_agent_bytecode_read_duration_seconds{result=read}":              2,
		"bpfman_agent_bytecode_read_duration_seconds{result=failed}":            1,
		"bpfman_agent_bytecode_read_duration_seconds{result=unfit}":             0,
	}
	if got := values(t, registry); !maps.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	(*Metrics)(nil).Repaired(1, 1)
	(*Metrics)(nil).Read(time.Second, "read")
}

func reported(kind string, condition v1alpha1.BpfProgramConditionType, links ...v1alpha1.LinkState) v1alpha1.ProgramObject {
	p := &v1alpha1.BpfProgram{}
	p.Labels = map[string]string{v1alpha1.LabelOwnerKind: kind}
	if condition != "" {
		v1alpha1.SetConditions(&p.Status.Conditions, condition.Condition(""))
	}
	for _, state := range links {
		p.Status.Links = append(p.Status.Links, v1alpha1.BpfProgramLink{State: state})
	}
	return p
}

func TestReports(t *testing.T) {
	registry := prometheus.NewRegistry()
	list := []v1alpha1.ProgramObject{
		reported("XdpProgram", v1alpha1.BpfProgCondLoaded, v1alpha1.LinkAttached, v1alpha1.LinkAttached),
		reported("XdpProgram", v1alpha1.BpfProgCondLoaded, v1alpha1.LinkAttached),
		reported("XdpProgram", v1alpha1.BpfProgCondNotLoaded, v1alpha1.LinkAttached, v1alpha1.LinkNotAttached),
		reported("BpfApplication", ""),
	}
	registry.MustRegister(&Reports{List: func() []v1alpha1.ProgramObject { return list }})
	want := map[string]float64{
		"bpfman_agent_programs{kind=XdpProgram,state=Loaded}":      2,
		"bpfman_agent_programs{kind=XdpProgram,state=NotLoaded}":   1,
		"bpfman_agent_programs{kind=BpfApplication,state=Pending}": 1,
		"bpfman_agent_links{kind=XdpProgram,state=Attached}":       4,
		"bpfman_agent_links{kind=XdpProgram,state=NotAttached}":    1,
	}
	if got := values(t, registry); !maps.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

// The metric names the daemon once one has answered.
func TestDaemon(t *testing.T) {
	registry, name := prometheus.NewRegistry(), ""
	registry.MustRegister(&Daemon{Name: func() string { return name }})
	for _, name = range []string{"", "bpfman (Go)"} {
		want := map[string]float64{}
		if name != "" {
			want["bpfman_agent_daemon_info{daemon="+name+"}"] = 1
		}
		if got := values(t, registry); !maps.Equal(got, want) {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}
}
