// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/userobject"
	"github.com/bpfman/bpfman-operator/tests/consumers"
	"github.com/bpfman/bpfman-operator/tests/envtest"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// Each recorded request of an operator of another project is accepted, with the rights of that operator. The same request
// again changes nothing, so the operator's passes cause no reloads. The status that bpfman writes survives them.
func TestRequestsOfConsumers(t *testing.T) {
	admin := deployed(t)
	for name, test := range map[string]struct {
		consumer *consumers.Consumer
		// needs is a role that the operator's own role lacks.
		needs string
		// want are the application's members after each request.
		want map[string][]string
	}{
		"NetObserv":             {consumers.NetObserv(t), "", netobservMembers()},
		"Ingress Node Firewall": {consumers.IngressNodeFirewall(t), "bpfman-clusterbpfapplication-editor-role", firewallMembers()},
	} {
		t.Run(name, func(t *testing.T) {
			as := accountOf(t, admin, test.consumer)
			if test.needs != "" {
				if err := consumers.Send(t.Context(), as, test.consumer.Requests[0].Object(t)); !apierrors.IsForbidden(err) {
					t.Errorf("without the role: %v", err)
				}
				bind(t, admin, test.consumer, test.needs)
			}
			app := &v1alpha1.ClusterBpfApplication{ObjectMeta: metav1.ObjectMeta{Name: test.consumer.Requests[0].Object(t).GetName()}}
			for _, r := range test.consumer.Requests {
				pass := func() {
					body := r.Object(t)
					body.SetOwnerReferences(nil) // the definition of the owner isn't installed
					envtest.Eventually(t, r.Step, func(ctx context.Context) error { return consumers.Send(ctx, as, body.DeepCopy()) })
					must.Succeed(t, admin.Get(t.Context(), client.ObjectKeyFromObject(app), app))
				}
				pass()
				if diff := cmp.Diff(test.want[r.Step], members(t, app)); diff != "" {
					t.Errorf("%s: members differ (-want +got):\n%s", r.Step, diff)
				}
				app.Status.Conditions = []metav1.Condition{{Type: "Success", Status: metav1.ConditionTrue, Reason: "Success", LastTransitionTime: metav1.Now(), ObservedGeneration: app.Generation}}
				app.Status.ObservedGeneration = app.Generation
				must.Succeed(t, admin.Status().Update(t.Context(), app))
				before := app.ResourceVersion
				pass()
				if app.ResourceVersion != before || app.Status.ObservedGeneration != app.Generation {
					t.Errorf("%s: the same request again changed the object to %+v", r.Step, app)
				}
			}
			must.Succeed(t, as.Delete(t.Context(), app))
		})
	}
}

func netobservMembers() map[string][]string {
	const (
		discovered = `"interfaceselector":{"interfacesdiscoveryconfig":{"interfaceautodiscovery":true,"excludeinterfaces":["lo"]}}`
		inPods     = `,"containers":{"pods":{}}`
	)
	flows := []string{
		`TCX {"bpffunctionname":"tcx_ingress_flow_parse",` + discovered + `,"direction":"ingress","priority":1000}`,
		`TCX {"bpffunctionname":"tcx_ingress_flow_parse",` + discovered + inPods + `,"direction":"ingress","priority":1000}`,
		`TCX {"bpffunctionname":"tcx_egress_flow_parse",` + discovered + `,"direction":"egress","priority":1000}`,
		`TCX {"bpffunctionname":"tcx_egress_flow_parse",` + discovered + inPods + `,"direction":"egress","priority":1000}`,
	}
	const (
		times = `Fentry {"bpffunctionname":"tcp_rcv_fentry","func_name":"tcp_rcv_established"}`
		drops = `Tracepoint {"bpffunctionname":"kfree_skb","names":["skb/kfree_skb"]}`
	)
	all := append(
		slices.Clone(flows), times, `Kprobe {"bpffunctionname":"network_events_monitoring","func_name":"psample_sample_packet"}`, drops,
		`Kprobe {"bpffunctionname":"track_nat_manip_pkt","func_name":"nf_nat_manip_pkt"}`,
		`Kprobe {"bpffunctionname":"xfrm_input_kprobe","func_name":"xfrm_input"}`,
		`Kretprobe {"bpffunctionname":"xfrm_input_kretprobe","func_name":"xfrm_input"}`,
		`Kprobe {"bpffunctionname":"xfrm_output_kprobe","func_name":"xfrm_output"}`,
		`Kretprobe {"bpffunctionname":"xfrm_output_kretprobe","func_name":"xfrm_output"}`,
	)
	return map[string][]string{
		"EbpfManager":                      flows,
		"FlowRTT, DNSTracking, PacketDrop": append(slices.Clone(flows), times, drops),
		"all features":                     all,
		"advanced.env and node selector":   all,
		"FlowRTT":                          append(slices.Clone(flows), times),
	}
}

func firewallMembers() map[string][]string {
	on := func(interfaces string) []string {
		return []string{
			`XDP {"bpffunctionname":"xdp_ingress_node_firewall_process","interfaceselector":{"interfaces":` + interfaces + `},"priority":0,"proceedon":["pass","dispatcher_return"]}`,
			`TCX {"bpffunctionname":"tcx_ingress_node_firewall_process","interfaceselector":{"interfaces":` + interfaces + `},"direction":"ingress","priority":0}`,
		}
	}
	return map[string][]string{"IngressNodeFirewall": on(`["eth0"]`), "interfaces": on(`["eth0","eth1"]`), "debug": on(`["eth0","eth1"]`)}
}

// accountOf creates the ServiceAccount's role, and returns a client with the rights of it.
func accountOf(t *testing.T, admin client.Client, c *consumers.Consumer) client.Client {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: c.ServiceAccount.Name}, Rules: c.Rules}
	must.Succeed(t, admin.Create(t.Context(), role))
	t.Cleanup(func() { must.Succeed(t, admin.Delete(context.WithoutCancel(t.Context()), role)) })
	bind(t, admin, c, role.Name)
	return envtest.Client(t, envtest.As(envtest.Config(t), c.ServiceAccount.Namespace, c.ServiceAccount.Name))
}

func bind(t *testing.T, admin client.Client, c *consumers.Consumer, role string) {
	t.Helper()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: c.ServiceAccount.Name + "-" + role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: c.ServiceAccount.Namespace, Name: c.ServiceAccount.Name}},
	}
	must.Succeed(t, admin.Create(t.Context(), binding))
	t.Cleanup(func() { must.Succeed(t, admin.Delete(context.WithoutCancel(t.Context()), binding)) })
}

// members returns the members of an application, as "type function configuration".
func members(t *testing.T, app *v1alpha1.ClusterBpfApplication) []string {
	t.Helper()
	var out []string
	for _, p := range userobject.Programs(app) {
		text, err := json.Marshal(p.Info())
		must.Succeed(t, err)
		out = append(out, fmt.Sprintf("%s %s", p.Type, text))
	}
	return out
}
