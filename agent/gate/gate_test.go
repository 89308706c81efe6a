// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package gate

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bpfman/bpfman-operator/agent/bytecode"
	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/plan"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/agent/report"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/kinds"
	"github.com/bpfman/bpfman-operator/internal/policy"
	"github.com/bpfman/bpfman-operator/internal/reader"
)

// policies are those of a cluster, or the error of reading them.
type policies struct {
	all []*v1alpha1.BytecodePolicy
	err error
}

func (p policies) Policies() ([]*v1alpha1.BytecodePolicy, error) { return p.all, p.err }

func (policies) Secret(context.Context, string, string) (*corev1.Secret, error) {
	return nil, errors.New("no Secret")
}

func (policies) ConfigMap(context.Context, string, string) (*corev1.ConfigMap, error) {
	return nil, errors.New("no ConfigMap")
}

// owned returns an owner whose bytecode is a file.
func owned() *program.Owner {
	o := &v1alpha1.TracepointProgram{ObjectMeta: metav1.ObjectMeta{Name: "x", UID: "uid"}}
	o.Spec.BpfFunctionName, o.Spec.Names = "f", []string{"sched/sched_switch"}
	o.Spec.ByteCode.Path = new("/opt/x.o")
	owner := program.OwnerOf("TracepointProgram", o)
	owner.Subject = policy.SubjectOf("TracepointProgram", o)
	return &owner
}

// Nothing is loaded until the policies are known, and running programs get no new links. Shortly after the agent's start, that isn't a failure.
func TestUnknownPolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unread := &kinds.UnreadError{}
		gates := &Policies{Cluster: policies{err: unread}}
		if _, err := gates.For(t.Context(), owned(), Earlier{}); !errors.Is(err, unread) {
			t.Errorf("at the start: %v", err)
		}
		<-time.After(firstList)
		g, err := gates.For(t.Context(), owned(), Earlier{})
		if err != nil {
			t.Fatal(err)
		}
		const says = "nothing is loaded or attached until the policies are known: "
		denied := (*report.PolicyError)(nil)
		if _, _, err := g.Admit(t.Context()); !errors.As(err, &denied) || denied.Final || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("%v", err)
		}
		want := plan.Want(*owned(), program.Node{}, nil)
		running := daemon.Program{ID: 7, Function: "f", OwnerUID: "uid", LoadID: want.Loads[0].ID}
		want, _ = g.Apply(t.Context(), want, []daemon.Program{running})
		if lack := want.Loads[0].Programs[0].Points[0].Lack; lack == nil || !strings.HasPrefix(lack.Error(), says) || len(want.Evicted) > 0 {
			t.Errorf("a running program gets links: %v, or is unloaded: %v", lack, want.Evicted)
		}
		if got := g.Again(); got != UnreadRetry {
			t.Errorf("tried again after %s", got)
		}
	})
}

// silent is a cluster whose API server doesn't respond, with policies in the cache.
type silent struct{ policies }

func (silent) Secret(ctx context.Context, _, _ string) (*corev1.Secret, error) {
	<-ctx.Done()
	return &corev1.Secret{}, ctx.Err()
}

// While the API server doesn't respond, owners wait for the keys of all policies together, and once: a change that cut off
// the node isn't rolled back before their passes end.
func TestKeysThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []*v1alpha1.BytecodePolicy
		for _, name := range []string{"a", "b", "c"} {
			p := &v1alpha1.BytecodePolicy{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
			p.Spec.Authorities = []v1alpha1.BytecodeAuthority{{Name: "team", Key: &v1alpha1.AuthorityKey{Secret: &v1alpha1.AuthorityReference{Name: "keys"}}}}
			all = append(all, p)
		}
		gates := &Policies{Cluster: silent{policies{all: all}}}
		start := time.Now()
		for range 4 {
			if _, err := gates.For(t.Context(), owned(), Earlier{}); err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(start); took > materialDeadline {
			t.Errorf("it took %s", took)
		}
	})
}

// lost is a cluster whose API server can't be reached while err is set, with a key in a Secret.
type lost struct {
	policies
	key []byte
	err error
}

func (l *lost) Secret(context.Context, string, string) (*corev1.Secret, error) {
	return &corev1.Secret{Data: map[string][]byte{"cosign.pub": l.key}}, l.err
}

// Keys that were read are used while the API server doesn't return them. Only those that don't exist aren't.
func TestKeysAreKeptWithoutTheAPIServer(t *testing.T) {
	const key = `-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE3RMezxXWgdLjKwXbfi5UBWNRQ5Bg
PNmALWTcaGLhNTlHiGwCtYZA1VMtWmquGxj0bb9lC4gdf8/WbcLE/ucs6A==
-----END PUBLIC KEY-----
`
	for name, c := range map[string]struct {
		err  error
		kept bool
	}{
		"no response":        {&url.Error{Op: "Get", URL: "https://api", Err: context.DeadlineExceeded}, true},
		"connection refused": {&url.Error{Op: "Get", URL: "https://api", Err: syscall.ECONNREFUSED}, true},
		"etcd fails":         {&apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusInternalServerError, Message: "etcdserver: request timed out"}}, true},
		"too many requests":  {apierrors.NewTooManyRequests("", 1), true},
		"forbidden":          {apierrors.NewForbidden(corev1.Resource("secrets"), "keys", nil), true},
		"deleted":            {apierrors.NewNotFound(corev1.Resource("secrets"), "keys"), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &v1alpha1.BytecodePolicy{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p"}}
				p.Spec.Authorities = []v1alpha1.BytecodeAuthority{{Name: "team", Key: &v1alpha1.AuthorityKey{Secret: &v1alpha1.AuthorityReference{Name: "keys"}}}}
				server := &lost{policies: policies{all: []*v1alpha1.BytecodePolicy{p}}, key: []byte(key)}
				gates := &Policies{Cluster: server}
				before, err := gates.compiled(t.Context())
				if len(before[0].Problems()) > 0 {
					t.Error(before[0].Problems())
				}
				if err != nil {
					t.Fatal(err)
				}
				<-time.After(materialHolds + time.Second)
				server.err = c.err
				after, err := gates.compiled(t.Context())
				if kept := len(after[0].Problems()) == 0; err != nil || kept != c.kept {
					t.Errorf("kept: %v, %v", kept, err)
				}
				server.err = nil
				<-time.After(materialLacks + time.Second)
				if again, err := gates.compiled(t.Context()); err != nil || again[0] == after[0] {
					t.Errorf("it isn't read again: %v", err)
				}
			})
		})
	}
}

// A policy that denies bytecode decides about its Load, and about the programs and links that are there already.
func TestDeniedBytecode(t *testing.T) {
	for name, c := range map[string]struct {
		mode        v1alpha1.PolicyMode // "" for a gate without the API server
		onViolation v1alpha1.PolicyOnViolation
		earlier     Earlier

		refused, closed, evicted bool
	}{
		"enforced":           {mode: v1alpha1.PolicyEnforce, onViolation: v1alpha1.OnViolationKeep, refused: true, closed: true},
		"enforced at once":   {mode: v1alpha1.PolicyEnforce, onViolation: v1alpha1.OnViolationUnload, refused: true, closed: true, evicted: true},
		"warned":             {mode: v1alpha1.PolicyWarn, onViolation: v1alpha1.OnViolationUnload},
		"an earlier version": {mode: v1alpha1.PolicyEnforce, earlier: Earlier{Image: bytecode.Image{Reference: "file:/opt/x.o"}, Allowed: true}, refused: true, closed: true},
		"offline":            {},
	} {
		t.Run(name, func(t *testing.T) {
			owner := owned()
			p := &v1alpha1.BytecodePolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
			p.Spec.Mode, p.Spec.OnViolation = c.mode, c.onViolation
			p.Spec.Rules = []v1alpha1.BytecodeRule{{Name: "none", Images: []string{"**"}, Deny: true}}
			gates := &Policies{Cluster: policies{all: []*v1alpha1.BytecodePolicy{p}}}
			g, err := gates.For(t.Context(), owner, c.earlier)
			if c.mode == "" {
				g = gates.Offline(owner, bytecode.Image{})
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := g.Admit(t.Context()); (err != nil) != c.refused {
				t.Errorf("admitted: %v", err)
			}
			want := plan.Want(*owner, program.Node{}, nil)
			loaded := daemon.Program{ID: 7, Function: "f", OwnerUID: "uid", LoadID: want.Loads[0].ID}
			want, _ = g.Apply(t.Context(), want, []daemon.Program{loaded})
			if closed := want.Loads[0].Programs[0].Points[0].Lack != nil; closed != c.closed {
				t.Errorf("new links are denied: %v", closed)
			}
			if want.Evicted[loaded.ID] != c.evicted {
				t.Errorf("unloaded: %v", want.Evicted)
			}
			if got := g.Again(); got != 0 {
				t.Errorf("judged again after %s", got)
			}
		})
	}
}

// A version that policies deny is unloaded even if the object has changed to one that they allow, and that can't be loaded.
func TestDeniedVersionsDoNotHideBehindLaterOnes(t *testing.T) {
	denied := policy.SubjectOf("TracepointProgram", &v1alpha1.TracepointProgram{Spec: v1alpha1.TracepointProgramSpec{
		TracepointProgramInfo: v1alpha1.TracepointProgramInfo{Names: []string{"syscalls/sys_enter_kill"}},
		BpfAppCommon:          v1alpha1.BpfAppCommon{ByteCode: v1alpha1.BytecodeSelector{Path: new("/opt/denied.o")}},
	}})
	allowed := owned().Subject
	image := bytecode.Image{Reference: "quay.io/acme/x:v1"}
	for name, c := range map[string]struct {
		running *policy.Subject
		image   bytecode.Image
		rule    v1alpha1.BytecodeRule
		evicted bool
	}{
		"a hook":                  {&denied, image, v1alpha1.BytecodeRule{Images: []string{"**"}, Limits: &v1alpha1.BytecodeLimits{Tracepoints: []string{"sched/*"}}}, true},
		"an allowed hook":         {&allowed, image, v1alpha1.BytecodeRule{Images: []string{"**"}, Limits: &v1alpha1.BytecodeLimits{Tracepoints: []string{"sched/*"}}}, false},
		"a file":                  {&denied, bytecode.Image{}, v1alpha1.BytecodeRule{Images: []string{"file:/opt/denied.o"}, Deny: true}, true},
		"a file of no record":     {nil, bytecode.Image{}, v1alpha1.BytecodeRule{Images: []string{"**"}, Deny: true}, false},
		"an image":                {nil, image, v1alpha1.BytecodeRule{Images: []string{"quay.io/acme/*"}, Deny: true}, true},
		"an image beside another": {&denied, image, v1alpha1.BytecodeRule{Images: []string{"file:/opt/denied.o"}, Deny: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c.rule.Name = "rule"
			p := &v1alpha1.BytecodePolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
			p.Spec.OnViolation, p.Spec.Rules = v1alpha1.OnViolationUnload, []v1alpha1.BytecodeRule{c.rule}
			owner := owned()
			g, err := (&Policies{Cluster: policies{all: []*v1alpha1.BytecodePolicy{p}}}).For(t.Context(), owner, Earlier{Running: func() *policy.Subject { return c.running }})
			if err != nil {
				t.Fatal(err)
			}
			want := plan.Want(*owner, program.Node{}, nil)
			former := daemon.Program{ID: 7, Function: "f", OwnerUID: "uid", LoadID: "former", Image: c.image}
			want, _ = g.Apply(t.Context(), want, []daemon.Program{former})
			if want.Evicted[former.ID] != c.evicted {
				t.Errorf("unloaded: %v", want.Evicted)
			}
		})
	}
}

// An object whose image can't be read is queued by each event of the node. The registry is asked as often as the backoff
// allows, and immediately after the object has changed.
func TestEventsDoNotEndABackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reads atomic.Int32
		library := &bytecode.Library{
			Read: func(context.Context, *reader.Request, *bytecode.Files) reader.Answer {
				reads.Add(1)
				return reader.Answer{Error: "registry r limits the number of requests"}
			},
			Store: &bytecode.Store{Dir: t.TempDir(), Limit: 1 << 20},
		}
		gates := &Policies{Cluster: policies{}, Bytecode: library, Read: func(program.Key) {}}
		owner := owned()
		owner.Bytecode = v1alpha1.BytecodeSelector{Image: &v1alpha1.BytecodeImage{Url: "registry.test/x:latest"}}
		events := func(during time.Duration) {
			for end := time.Now().Add(during); time.Now().Before(end); <-time.After(20 * time.Millisecond) {
				g, err := gates.For(t.Context(), owner, Earlier{})
				if err != nil {
					t.Fatal(err)
				}
				if _, _, err := g.Admit(t.Context()); err == nil {
					t.Error("admitted")
				}
			}
		}
		events(14 * time.Second)
		if got := reads.Load(); got < 3 || got > 8 {
			t.Errorf("%d reads in 14 seconds", got)
		}
		before := reads.Load()
		owner.Generation++
		events(100 * time.Millisecond)
		if got := reads.Load() - before; got != 1 {
			t.Errorf("%d reads after a change", got)
		}
	})
}
