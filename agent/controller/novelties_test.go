// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// A revision is new once. Statuses, labels, and other annotations don't make it new again.
func TestNovelties(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, key, o := &novelties{}, program.Key{Kind: "TcxProgram", Name: "a"}, &v1alpha1.TcxProgram{}
		o.UID, o.Generation = "uid", 1
		is := func(what string, age time.Duration, settled bool) {
			t.Helper()
			if since, is := n.since(key, o); time.Since(since) != age || is != settled {
				t.Errorf("%s: %s old, and settled: %v", what, time.Since(since), is)
			}
		}
		is("new", 0, false)
		<-time.After(time.Second)
		is("later", time.Second, false)
		n.settle(key)
		o.Labels, o.Annotations = map[string]string{"a": "b"}, map[string]string{v1alpha1.AnnotationRolloutPaused: "true"}
		is("settled", time.Second, true)
		for what, change := range map[string]func(){
			"edited":      func() { o.Generation++ },
			"restarted":   func() { o.Annotations[v1alpha1.AnnotationRestartedAt] = "now" },
			"created":     func() { o.UID = "another" },
			"was deleted": func() { n.forget(key) },
		} {
			change()
			is(what, 0, false)
			n.settle(key)
		}
	})
}
