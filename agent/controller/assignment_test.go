// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An object that is new to the node waits until the node knows whether there are RolloutPolicies, no matter why they can't be
// read. Only a kind that doesn't exist has no objects.
func TestRolloutPoliciesThatCannotBeRead(t *testing.T) {
	for name, c := range map[string]struct {
		status metav1.Status
		waits  bool
	}{
		"etcd fails":        {metav1.Status{Code: http.StatusInternalServerError, Message: "etcdserver: request timed out"}, true},
		"too many requests": {metav1.Status{Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests}, true},
		"no permission":     {metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden}, true},
		"no definition":     {metav1.Status{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound}, false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, looked := range []time.Duration{0, together / 2} { // by then, the agent has found none at its start
				synctest.Test(t, func(t *testing.T) {
					server := &apiServer{lists: map[string]string{"tcxprograms": discovering("net")}}
					if looked == 0 {
						server.fail("rolloutpolicies", &c.status)
					}
					h, stop := startController(t, server, nil)
					defer stop()
					<-time.After(looked)
					server.fail("rolloutpolicies", &c.status)
					<-time.After(5 * time.Minute)
					if waits := h.links() == 0; waits != c.waits {
						t.Errorf("after %s, it waits: %v", looked, waits)
					}
					server.fail("rolloutpolicies", nil)
					within(t, time.Minute, "attached", func() bool { return h.links() == 1 })
				})
			}
		})
	}
}

// An image that nothing seems to use can be one of an object that the agent hasn't read.
func TestUseOfImagesIsUnknown(t *testing.T) {
	for name, c := range map[string]struct {
		status  *metav1.Status
		unknown bool
	}{
		"read":          {nil, false},
		"etcd fails":    {&metav1.Status{Code: http.StatusInternalServerError, Message: "etcdserver: request timed out"}, true},
		"no permission": {&metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden}, true},
		"no definition": {&metav1.Status{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &apiServer{lists: map[string]string{"tcxprograms": discovering("net")}}
				server.fail("xdpprograms", c.status)
				h, stop := startController(t, server, nil)
				defer stop()
				if h.Bytecode.Store.Unknown() == nil {
					t.Error("it is known before the daemon's programs are")
				}
				within(t, time.Minute, "attached", func() bool { return h.links() == 1 })
				<-time.After(time.Minute)
				if err := h.Bytecode.Store.Unknown(); (err != nil) != c.unknown {
					t.Errorf("%v", err)
				}
			})
		})
	}
}
