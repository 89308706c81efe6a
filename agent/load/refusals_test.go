// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package load

import (
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/agent/report"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// refused is an answer of the daemon that stays.
var refused = &daemon.Error{Op: "load f", Cause: status.Error(codes.FailedPrecondition, "error parsing BPF object: no")}

// loading is a Load of a test.
type loading struct {
	owner   program.Owner
	request *gobpfman.LoadRequest
}

func newLoading() loading {
	return loading{program.Owner{Key: program.Key{Kind: "XdpProgram", Name: "x"}, Generation: 1}, &gobpfman.LoadRequest{
		Uuid: new("uid"), Metadata: map[string]string{v1alpha1.MetadataLoad: "load", v1alpha1.MetadataManifest: "manifest"},
	}}
}

// tries makes one try of a Load, and returns whether the daemon was asked.
func tries(t *testing.T, r *refusals, l loading, answer error) bool {
	t.Helper()
	asked := false
	got := r.try(l.owner, l.request, func() error { asked = true; return answer })
	if got != answer { //nolint:errorlint // must be the same error
		t.Errorf("%v, want %v", got, answer)
	}
	return asked
}

// What the daemon refuses for good is tried again after a second, and then after twice as
// long each time, up to an hour. In between, the error is the same.
func TestRefusedLoadsAreDelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRefusals()
		last := time.Now()
		var waited []time.Duration
		for now := last; now.Sub(last) < 2*lastReload && len(waited) < 16; now = time.Now() {
			if tries(t, &r, newLoading(), refused) {
				waited = append(waited, now.Sub(last))
				last = now
			}
			<-time.After(time.Second)
		}
		want := time.Duration(0)
		for n, got := range waited {
			if got != want {
				t.Errorf("try %d after %s, want %s", n, got, want)
			}
			want = min(max(firstReload, 2*want), lastReload)
		}
		if len(waited) < 16 || waited[15] != lastReload {
			t.Errorf("waited %s", waited)
		}
	})
}

// Other errors aren't delayed, and neither is what follows a success.
func TestOtherFailuresAreNotDelayed(t *testing.T) {
	for name, err := range map[string]error{
		"success":          nil,
		"transient":        &daemon.Error{Op: "load f", Cause: status.Error(codes.Aborted, "no memory")},
		"unreachable":      &daemon.Error{Op: "load f", Cause: status.Error(codes.Unavailable, "error parsing BPF object")},
		"a pin's fault":    errors.New("the pinned map x has type Hash; the daemon reports: error parsing BPF object"),
		"not the daemon's": &report.BytecodeError{Err: errors.New("error parsing BPF object")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRefusals()
				for range 3 {
					if !tries(t, &r, newLoading(), err) {
						t.Error("delayed")
					}
				}
				// It also ends the delays.
				for range 5 {
					tries(t, &r, newLoading(), refused)
					<-time.After(lastReload)
				}
				if !tries(t, &r, newLoading(), err) || !tries(t, &r, newLoading(), refused) {
					t.Error("delayed")
				}
				<-time.After(firstReload)
				if !tries(t, &r, newLoading(), refused) {
					t.Errorf("delayed by more than %s", firstReload)
				}
			})
		})
	}
}

// If anything that a Load depends on changes, it is tried immediately. The others still
// wait.
func TestChangesEndDelays(t *testing.T) {
	for name, change := range map[string]func(*loading){
		"owner":              func(l *loading) { l.owner.Name = "y" },
		"namespace":          func(l *loading) { l.owner.Namespace = "n" },
		"created again":      func(l *loading) { l.request.Uuid = new("another") },
		"generation":         func(l *loading) { l.owner.Generation++ },
		"annotation":         func(l *loading) { l.owner.ReplacePinnedMaps = true },
		"restart":            func(l *loading) { l.owner.RestartedAt = "now" },
		"load":               func(l *loading) { l.request.Metadata[v1alpha1.MetadataLoad] = "another" },
		"manifest":           func(l *loading) { l.request.Metadata[v1alpha1.MetadataManifest] = "another" },
		"map owner":          func(l *loading) { l.request.MapOwnerId = new(uint32(7)) },
		"nothing":            func(*loading) {},
		"the index, but not": func(l *loading) { l.request.Metadata[v1alpha1.MetadataDigest] = "another" },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRefusals()
				tries(t, &r, newLoading(), refused)
				changed := newLoading()
				changed.request.Metadata = maps.Clone(changed.request.Metadata)
				change(&changed)
				same := name == "nothing" || name == "the index, but not"
				if asked := tries(t, &r, changed, refused); asked == same {
					t.Errorf("asked: %v", asked)
				}
				if tries(t, &r, newLoading(), refused) {
					t.Error("the other one was asked again")
				}
				r.kept.Clear() // the daemon was replaced
				if !tries(t, &r, newLoading(), refused) || !tries(t, &r, changed, refused) && !same {
					t.Error("still delayed")
				}
			})
		})
	}
}
