// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package e2e

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/node"
	"github.com/bpfman/bpfman-operator/tests/restarts"
)

// TestRollback attaches a program that drops everything on the interface to the API server. The node rolls it back by
// itself, and the version before runs again.
func TestRollback(t *testing.T) {
	for kind, c := range map[string]struct {
		create func(name string, at v1alpha1.InterfaceSelector) v1alpha1.UserObject
		// drops changes what the program does with packets.
		drops func(o v1alpha1.UserObject, all bool)
	}{
		"TCX": {
			func(name string, at v1alpha1.InterfaceSelector) v1alpha1.UserObject {
				return &v1alpha1.TcxProgram{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.TcxProgramSpec{
					TcxProgramInfo: tcxInfo("tcx_next", at), BpfAppCommon: of("tcx_test"),
				}}
			},
			func(o v1alpha1.UserObject, all bool) {
				if o, ok := o.(*v1alpha1.TcxProgram); ok {
					o.Spec.BpfFunctionName = map[bool]string{true: "tcx_drop", false: "tcx_next"}[all]
				}
			},
		},
		"XDP": {
			func(name string, at v1alpha1.InterfaceSelector) v1alpha1.UserObject {
				return &v1alpha1.XdpProgram{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.XdpProgramSpec{
					XdpProgramInfo: v1alpha1.XdpProgramInfo{BpfProgramCommon: functionOf("verdict"), InterfaceSelector: at, Priority: 50},
					BpfAppCommon:   of("xdp_verdict"),
				}}
			},
			func(o v1alpha1.UserObject, all bool) {
				common := o.GetAppCommon()
				common.GlobalData = map[string][]byte{"VERDICT": {map[bool]byte{true: xdpDrop, false: xdpPass}[all], 0, 0, 0}}
				o.SetAppCommon(common)
			},
		},
	} {
		t.Run(kind, func(t *testing.T) {
			requireType(t, kind)
			name := "e2e-rollback-" + strings.ToLower(kind)
			victim := under.nodes()[len(under.nodes())-1]
			o := c.create(name, toAPIServer(t, victim))
			c.drops(o, false)
			common := o.GetAppCommon()
			common.ByteCode.Image.ImagePullPolicy = v1alpha1.PullAlways
			common.NodeSelector.MatchLabels = map[string]string{corev1.LabelHostname: victim}
			o.SetAppCommon(common)
			rollBack(t, name, victim, o, c.drops)
		})
	}
}

// apiServer returns the address of the API server, and whether it is on a node.
func apiServer(ctx context.Context, t *testing.T, nodeName string) (address string, here bool) {
	t.Helper()
	slice, err := under.clientset.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n := get(ctx, t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}})
	for _, e := range slice.Endpoints {
		for _, endpoint := range e.Addresses {
			address = net.JoinHostPort(endpoint, fmt.Sprint(*slice.Ports[0].Port))
			if slices.ContainsFunc(n.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Address == endpoint }) {
				return address, true
			}
		}
	}
	return address, false
}

// toAPIServer selects the interface over which a node reaches the API server: the loopback interface if that is on the
// node.
func toAPIServer(t *testing.T, nodeName string) v1alpha1.InterfaceSelector {
	t.Helper()
	if _, here := apiServer(t.Context(), t, nodeName); here {
		return on("lo")
	}
	primary := true
	return v1alpha1.InterfaceSelector{PrimaryNodeInterface: &primary}
}

func rollBack(t *testing.T, name, victim string, o v1alpha1.UserObject, drops func(v1alpha1.UserObject, bool)) {
	t.Helper()
	var token string
	says := func(ctx context.Context, c v1alpha1.BpfProgramConditionType, words string) {
		t.Helper()
		awaitFor(ctx, t, recovery, string(c)+": "+words, func(ctx context.Context) (bool, string) {
			var list v1alpha1.BpfProgramList
			err := under.List(ctx, &list, client.MatchingLabels{v1alpha1.LabelOwnedByProgram: name})
			if err != nil || len(list.Items) != 1 || len(list.Items[0].Status.Conditions) == 0 {
				return false, "there is no report"
			}
			is := list.Items[0].Status.Conditions[0]
			return is.Type == string(c) && strings.Contains(is.Message, words), is.Type + ": " + is.Message
		})
	}
	feature(t,
		step{"a version is confirmed", func(ctx context.Context, s *testing.T) {
			namespace(ctx, t, name)
			token = metricsReader(ctx, t, name, "reader")
			create(ctx, t, o)
			says(ctx, v1alpha1.BpfProgCondLoaded, "")
			await(ctx, s, "the change is confirmed", func(ctx context.Context) (bool, string) {
				return strings.Contains(readAgent(ctx, s, token, victim), "bpfman_agent_unconfirmed_changes 0"), "it isn't"
			})
		}},
		step{"one that cuts off the node is rolled back", func(ctx context.Context, s *testing.T) {
			// Components lose their connections, and the operator its lease.
			for _, component := range []string{node.Operator, node.Agent, node.CSI, node.Inspector} {
				under.restarts.Expect(component, restarts.Unlimited)
			}
			address, _ := apiServer(ctx, s, victim)
			start, ended := time.Now(), inBackground[time.Duration](ctx, s, victim, []string{"outage", address}, "end-outage", address)
			modify(ctx, s, o, func(o v1alpha1.UserObject) { drops(o, true) })
			says(ctx, v1alpha1.BpfProgCondRolledBack, "and got one after the rollback: generation 1 runs again")
			s.Logf("the node had no connection to the API server for %s; the report came %s after the change",
				ended().Round(time.Second/10), time.Since(start).Round(time.Second/10))
		}},
		step{"the next version is tried", func(ctx context.Context, s *testing.T) {
			modify(ctx, s, o, func(o v1alpha1.UserObject) { drops(o, false) })
			awaitSuccess(ctx, s, o)
			says(ctx, v1alpha1.BpfProgCondLoaded, "")
		}},
	)
}
