// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package monitoring

import (
	"cmp"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/yaml"

	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// Targets of a healthy cluster, and a series of each.
const (
	operatorUp = `up{job="bpfman-controller-manager-metrics-service",pod="operator"}`
	nodeUp     = `up{job="bpfman/bpfman-nodes",pod="daemon-a",node="a"}`
)

// history is what Prometheus scrapes once a minute, in promtool's notation: 0x30 is 0 for 31 minutes, 0+1x30 counts up,
// _x5 is nothing for 5 minutes, and stale ends a series.
type history struct {
	series map[string]string
	// firing are the alerts that fire at a time such as 20m. No other alert fires then.
	firing map[string][]string
}

var healthy = map[string]string{operatorUp: "1x180", nodeUp: "1x180"}

var never = map[string][]string{"11m": nil, "20m": nil, "60m": nil, "170m": nil}

// histories cover each alert: what it is for, and what looks similar, but is none of its business.
var histories = map[string]history{
	"all is well": {series: map[string]string{
		`bpfman_agent_programs{node="a",kind="XdpProgram",state="Loaded"}`:                                                 "30x180",
		`bpfman_agent_programs{node="a",kind="TcProgram",state="NoInterfacesOnNode"}`:                                      "1x180",
		`bpfman_agent_links{node="a",kind="XdpProgram",state="Attached"}`:                                                  "30x180",
		`bpfman_agent_drift_repaired_total{node="a",what="program"}`:                                                       "0x180",
		`bpfman_agent_daemon_call_duration_seconds_count{node="a",call="Attach",code="Aborted"}`:                           "1+1x180",
		`bpfman_agent_daemon_database_bytes{node="a"}`:                                                                     "1000000x180",
		`workqueue_longest_running_processor_seconds{node="a",name="programs"}`:                                            "120x180",
		`csi_plugin_stale_volumes{node="a"}`:                                                                               "0x180",
		`csi_plugin_registered{node="a"}`:                                                                                  "1x180",
		`bpf_conflicts{node="a",type="EarlierInChain"}`:                                                                    "3x180",
		`bpfman_operator_node_pods{namespace="bpfman",state="desired"}`:                                                    "3x180",
		`bpfman_operator_node_pods{namespace="bpfman",state="ready"}`:                                                      "3x180",
		`csi_plugin_operations_seconds_count{method_name="/csi.v1.Node/NodePublishVolume",grpc_status_code="OK",node="a"}`: "1+1x180",
	}, firing: never},
	"a node with 30 programs reboots": {series: map[string]string{
		nodeUp: "1x60 0x3 1x120",
		`bpfman_agent_programs{node="a",kind="XdpProgram",state="Loaded"}`:                         "30x60 stale _x2 30x120",
		`bpfman_agent_programs{node="a",kind="XdpProgram",state="Pending"}`:                        "_x64 30x1 stale",
		`bpfman_agent_drift_repaired_total{node="a",what="program"}`:                               "0x60 _x3 0x120",
		`bpfman_agent_daemon_call_duration_seconds_count{node="a",call="List",code="Unavailable"}`: "_x64 1x120",
		`csi_plugin_registered{node="a"}`:                                                          "1x60 _x3 0x1 1x120",
		`bpfman_operator_node_pods{namespace="bpfman",state="desired"}`:                            "3x180",
		`bpfman_operator_node_pods{namespace="bpfman",state="ready"}`:                              "3x60 2x4 3x120",
	}, firing: map[string][]string{"61m": nil, "66m": nil, "75m": nil, "120m": nil}},
	"a program can't be loaded": {series: map[string]string{
		`bpfman_agent_programs{node="a",kind="XdpProgram",state="NotLoaded"}`: "1x180",
	}, firing: map[string][]string{"9m": nil, "11m": {"BpfmanProgramFailed"}}},
	"a program fails for a moment": {series: map[string]string{
		`bpfman_agent_programs{node="a",kind="XdpProgram",state="NotLoaded"}`: "1x8 stale",
	}, firing: never},
	"a report stays empty": {series: map[string]string{
		`bpfman_agent_programs{node="a",kind="XdpProgram",state="Pending"}`: "1x180",
	}, firing: map[string][]string{"14m": nil, "16m": {"BpfmanProgramPending"}}},
	"the API server refuses reports": {series: map[string]string{
		`bpfman_agent_unreported_objects{node="a"}`: "0x5 2x180",
	}, firing: map[string][]string{"14m": nil, "22m": {"BpfmanReportsNotWritten"}}},
	"reports are written with every scrape": {series: map[string]string{
		`bpfman_agent_unreported_objects{node="a"}`: "1x10 0x1 1x12 0x1 1x13 0x1 1x10 0x180",
	}, firing: never},
	"an attach point fails": {series: map[string]string{
		`bpfman_agent_links{node="a",kind="XdpProgram",state="NotAttached"}`: "1x180",
	}, firing: map[string][]string{"9m": nil, "11m": {"BpfmanLinkNotAttached"}}},
	"a policy denies, and another can't be evaluated": {series: map[string]string{
		`bpfman_agent_policy_verdicts{node="a",policy="ours",verdict="Denied"}`:    "1x180",
		`bpfman_agent_policy_verdicts{node="a",policy="signed",verdict="Unknown"}`: "1x180",
	}, firing: map[string][]string{"11m": {"BpfmanPolicyViolated"}, "16m": {"BpfmanPolicyUnknown", "BpfmanPolicyViolated"}}},
	"the daemon hangs": {series: map[string]string{
		`bpfman_agent_daemon_call_duration_seconds_count{node="a",call="List",code="DeadlineExceeded"}`: "0x5 1+2x180",
	}, firing: map[string][]string{"14m": nil, "20m": {"BpfmanDaemonUnreachable"}}},
	"the daemon restarts once": {series: map[string]string{
		`bpfman_agent_daemon_call_duration_seconds_count{node="a",call="List",code="Unavailable"}`: "0x5 2x180",
	}, firing: never},
	"the daemon is slow": {series: map[string]string{
		`bpfman_agent_daemon_call_duration_seconds_bucket{node="a",call="Attach",le="5"}`:    "0x180",
		`bpfman_agent_daemon_call_duration_seconds_bucket{node="a",call="Attach",le="15"}`:   "0+10x180",
		`bpfman_agent_daemon_call_duration_seconds_bucket{node="a",call="Attach",le="+Inf"}`: "0+10x180",
	}, firing: map[string][]string{"8m": nil, "20m": {"BpfmanDaemonSlow"}}},
	"Loads take long": {series: map[string]string{
		`bpfman_agent_daemon_call_duration_seconds_bucket{node="a",call="Load",le="5"}`:    "0x180",
		`bpfman_agent_daemon_call_duration_seconds_bucket{node="a",call="Load",le="60"}`:   "0+10x180",
		`bpfman_agent_daemon_call_duration_seconds_bucket{node="a",call="Load",le="+Inf"}`: "0+10x180",
	}, firing: never},
	"the database and the list of the daemon grow": {series: map[string]string{
		`bpfman_agent_daemon_database_bytes{node="a"}`: "300000000x180",
		`bpfman_agent_daemon_list_bytes{node="a"}`:     "20000000x180",
	}, firing: map[string][]string{"14m": nil, "16m": {"BpfmanDaemonDatabaseLarge", "BpfmanDaemonListLarge"}}},
	"a worker hangs": {series: map[string]string{
		`workqueue_longest_running_processor_seconds{node="a",name="programs"}`: "0+60x180",
	}, firing: map[string][]string{"10m": nil, "12m": {"BpfmanAgentStuck"}}},
	"something unloads a program every two minutes": {series: map[string]string{
		`bpfman_agent_drift_repaired_total{node="a",what="program"}`: "0+0.5x180",
	}, firing: map[string][]string{"11m": nil, "60m": {"BpfmanDrift"}}},
	"volumes are stale, and pods wait for others": {series: map[string]string{
		`csi_plugin_stale_volumes{node="a"}`: "2x180",
		`csi_plugin_operations_seconds_count{method_name="/csi.v1.Node/NodePublishVolume",grpc_status_code="NotFound",node="a"}`: "0+1x180",
	}, firing: map[string][]string{"14m": nil, "20m": {"BpfmanVolumesNotPublished", "BpfmanVolumesStale"}}},
	"a pod waits for its program for a minute": {series: map[string]string{
		`csi_plugin_operations_seconds_count{method_name="/csi.v1.Node/NodePublishVolume",grpc_status_code="NotFound",node="a"}`: "0x5 3x180",
	}, firing: never},
	"the plugin isn't registered": {series: map[string]string{
		`csi_plugin_registered{node="a"}`: "0x180",
	}, firing: map[string][]string{"4m": nil, "6m": {"BpfmanNotRegistered"}}},
	"a program takes half a CPU": {series: map[string]string{
		`bpf_program_run_seconds_total{node="a",owner_kind="XdpProgram",owner_name="stats",program="stats",holder=""}`: "0+30x180",
	}, firing: map[string][]string{"8m": nil, "20m": {"BpfmanProgramCPU"}}},
	"programs conflict": {series: map[string]string{
		`bpf_conflicts{node="a",type="Replaced"}`: "1x180",
	}, firing: map[string][]string{"9m": nil, "11m": {"BpfmanConflict"}}},
	"a node component doesn't serve its metrics": {series: map[string]string{
		nodeUp: "0x180",
	}, firing: map[string][]string{"9m": nil, "11m": {"BpfmanDown"}}},
	"the operator has no replicas": {series: map[string]string{
		operatorUp: "1x20 stale",
	}, firing: map[string][]string{"28m": nil, "40m": {"BpfmanAbsent"}}},
	"the DaemonSet is deleted": {series: map[string]string{
		nodeUp: "1x20 stale",
	}, firing: map[string][]string{"28m": nil, "40m": {"BpfmanAbsent"}}},
	"the node components run on no node on purpose": {
		series: with(podCounts("0x180", "0x180", "0x180", "0x180"), nodeUp, "1x20 stale"),
		firing: never,
	},
	"the API server refuses the pod of a node": {
		series: podCounts("3x180", "2x180", "2x180", "0x180"),
		firing: map[string][]string{"14m": nil, "16m": {"BpfmanNodePodsMissing"}},
	},
	"an upgrade stops, because the API server refuses pods": {
		series: podCounts("3x180", "3x20 2x180", "0x20 1x180", "0x180"),
		firing: map[string][]string{"34m": nil, "60m": {"BpfmanNodePodsMissing"}},
	},
	"the pod of a node isn't ready": {
		series: podCounts("3x180", "3x180", "3x180", "0x9 1x180"),
		firing: map[string][]string{"14m": nil, "16m": {"BpfmanNodePodsNotReady"}},
	},
	"the pod of a node is restarted for a long time": {series: podCounts("3x180", "3x180", "3x180", "0x20 1x3 0x180"), firing: never},
	// Until it ends, there are always nodes whose pod was just deleted, or that isn't ready yet.
	"5000 nodes are upgraded, a tenth at a time": {series: podCounts("5000x180", "5000x10 4900x60 5000x180", "5000x9 0+80x62 5000x180", "0x180"), firing: never},
	"nodes come and go all the time":             {series: podCounts("10+1x90 100-1x90", "10+1x90 100-1x90", "10+1x90 100-1x90", "0x180"), firing: never},
}

// podCounts returns the operator's series about the pods of the node components.
func podCounts(desired, scheduled, updated, late string) map[string]string {
	series := map[string]string{}
	for state, values := range map[string]string{"desired": desired, "scheduled": scheduled, "updated": updated, "late": late} {
		series[`bpfman_operator_node_pods{namespace="bpfman",state="`+state+`"}`] = values
	}
	return series
}

// with adds a series.
func with(all map[string]string, series, values string) map[string]string {
	all[series] = values
	return all
}

// Types of the file that promtool reads: https://prometheus.io/docs/prometheus/latest/configuration/unit_testing_rules
type (
	promtoolTests struct {
		RuleFiles []string       `json:"rule_files"`
		Tests     []promtoolTest `json:"tests"`
	}
	promtoolTest struct {
		Name     string               `json:"name"`
		Interval string               `json:"interval"`
		Series   []promtoolSeries     `json:"input_series"`
		Expected []promtoolExpression `json:"promql_expr_test"`
	}
	promtoolSeries struct {
		Series string `json:"series"`
		Values string `json:"values"`
	}
	promtoolExpression struct {
		Expression string           `json:"expr"`
		At         string           `json:"eval_time"`
		Samples    []promtoolSample `json:"exp_samples"`
	}
	promtoolSample struct {
		Labels string `json:"labels"`
		Value  int    `json:"value"`
	}
)

// TestAlertsOverTime has Prometheus' own evaluation say which alerts fire in each history.
func TestAlertsOverTime(t *testing.T) {
	promtool := cmp.Or(os.Getenv("PROMTOOL"), "../../bin/promtool")
	if _, err := os.Stat(promtool); err != nil {
		prerequisite.Missing(t, "run `make promtool` first", prerequisite.Promtool)
	}
	var rule monitoringv1.PrometheusRule
	read(t, "PrometheusRule", "bpfman", &rule)
	dir := t.TempDir()
	write := func(name string, content any) string {
		t.Helper()
		encoded, err := yaml.Marshal(content)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		must.Succeed(t, os.WriteFile(path, encoded, 0o600))
		return path
	}

	file := promtoolTests{RuleFiles: []string{write("rules.yaml", rule.Spec)}}
	fired := map[string]bool{}
	for name, h := range histories {
		test := promtoolTest{Name: name, Interval: "1m"}
		series := maps.Clone(healthy)
		maps.Copy(series, h.series)
		for _, s := range slices.Sorted(maps.Keys(series)) {
			test.Series = append(test.Series, promtoolSeries{s, series[s]})
		}
		for at, alerts := range h.firing {
			expected := promtoolExpression{Expression: `count by (alertname) (ALERTS{alertstate="firing"})`, At: at, Samples: []promtoolSample{}}
			for _, alert := range alerts {
				fired[alert] = true
				expected.Samples = append(expected.Samples, promtoolSample{`{alertname="` + alert + `"}`, 1})
			}
			test.Expected = append(test.Expected, expected)
		}
		file.Tests = append(file.Tests, test)
	}
	for _, group := range rule.Spec.Groups {
		for _, r := range group.Rules {
			if !fired[r.Alert] {
				t.Errorf("no history makes alert %s fire", r.Alert)
			}
		}
	}
	output, err := exec.CommandContext(t.Context(), promtool, "test", "rules", write("tests.yaml", file)).CombinedOutput()
	if err != nil {
		t.Errorf("promtool: %v\n%s", err, output)
	}
}
