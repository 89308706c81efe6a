// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bytecode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/reader"
)

// registries are what Read of a Library reads. A read takes a moment.
type registries struct {
	mu sync.Mutex
	// content contains the objects by reference. They determine the digests.
	content map[string]string
	// signers contains who signed an image, by its digest.
	signers map[string]string
	// down is the error of every read, and retryAfter when the registries accept requests again, in seconds.
	down       string
	retryAfter int64
	// alter, if not nil, changes answers.
	alter func(*reader.Answer)
	// asked are the requests.
	asked []*reader.Request
	// kernel is the kernel for which objects of the store are adapted, and unfit why they can't be.
	kernel, unfit string
}

func (r *registries) serve(ctx context.Context, request *reader.Request, files *Files) reader.Answer {
	select {
	case <-time.After(lan):
	case <-ctx.Done():
		return reader.Answer{Error: "interrupted"}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, request)
	if request.Image == "" {
		return r.adapt(files)
	}
	name, byDigest, _ := strings.Cut(request.Image, "@")
	content, there := r.content[name]
	if byDigest != "" {
		there = false
		for _, c := range r.content {
			if digest("index of "+c) == byDigest {
				content, there = c, true
			}
		}
	}
	switch {
	case r.down != "":
		answer := reader.Answer{Error: r.down, RetryAfter: r.retryAfter}
		if r.alter != nil {
			r.alter(&answer)
		}
		return answer
	case !there:
		return reader.Answer{Error: "not found"}
	}
	answer := reader.Answer{Digest: digest("index of " + content), Manifest: digest("manifest of " + content)}
	if request.Object && request.Have != answer.Manifest {
		_, _ = files.Object.WriteString(content)
		described := described(content)
		answer.Object = &described
	}
	for _, a := range request.Authorities {
		answer.Signatures = append(answer.Signatures, reader.Finding{Authority: a.Name, Signer: r.signers[answer.Digest]})
	}
	for _, a := range request.Attestations {
		answer.Attestations = append(answer.Attestations, reader.Finding{Authority: a.Authorities[0], PredicateType: a.PredicateType, Signer: r.signers[answer.Digest]})
	}
	if r.alter != nil {
		r.alter(&answer)
	}
	return answer
}

// adapt adapts an object as for the kernel r.kernel.
func (r *registries) adapt(files *Files) reader.Answer {
	content, err := io.ReadAll(files.Object)
	if err != nil || r.unfit != "" {
		return reader.Answer{Error: fmt.Sprint(r.unfit, err), Unfit: true}
	}
	object := adaptedTo(r.kernel, string(content))
	_, _ = files.Adapted.WriteString(string(content) + " for " + r.kernel)
	answer := reader.Answer{Object: &object}
	if r.alter != nil {
		r.alter(&answer)
	}
	return answer
}

// reads returns the number of reads since it was last called.
func (r *registries) reads() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.asked)
	r.asked = nil
	return n
}

func (r *registries) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

// shelf is a Library of a test, with its registries.
type shelf struct {
	*Library
	*registries

	t *testing.T
}

func newShelf(t *testing.T) *shelf {
	t.Helper()
	r := &registries{content: map[string]string{"quay.io/a:v1": "first"}, signers: map[string]string{}}
	return &shelf{&Library{Read: r.serve, Store: &Store{Dir: t.TempDir(), Limit: 1000}}, r, t}
}

// results returns the number of runs in memory.
func (s *shelf) results() int {
	s.runs.mu.Lock()
	defer s.runs.mu.Unlock()
	return len(s.runs.byKey)
}

// restart replaces the Library, as a restart of the agent does.
func (s *shelf) restart() {
	s.Library = &Library{Read: s.serve, Store: &Store{Dir: s.Store.Dir, Limit: s.Store.Limit}}
}

func anonymous() (reader.Credentials, error) { return reader.Credentials{}, nil }

// askers counts the owners.
var askers atomic.Int64

// asker returns another owner, in a namespace.
func asker(namespace string) program.Key {
	return program.Key{Kind: "TcxNsProgram", Namespace: namespace, Name: fmt.Sprint(askers.Add(1))}
}

// question asks for an object.
func question(reference string, policy v1alpha1.PullPolicy) Question {
	return Question{Owner: asker("a"), Image: Image{Reference: reference}, PullPolicy: policy, Credentials: anonymous, Object: true}
}

// signedBy adds an authority to a question.
func signedBy(q Question, keys ...string) Question {
	q.Authorities = []reader.Authority{{Name: "p/a", Keys: keys}}
	return q
}

// find asks until the answer isn't pending anymore, like an owner in the queue.
func (s *shelf) find(q Question) (Bytecode, error) {
	s.t.Helper()
	for range 3 {
		done := make(chan struct{})
		found, err := s.Find(s.t.Context(), q, func() { close(done) })
		if pending := (*PendingError)(nil); !errors.As(err, &pending) {
			return found, err
		}
		<-done
	}
	s.t.Fatalf("%s stays pending", q.Image.Reference)
	return Bytecode{}, nil
}

// gets finds an object with some content, with so many reads.
func (s *shelf) gets(q Question, content string, reads int) Bytecode {
	s.t.Helper()
	s.reads()
	found, err := s.find(q)
	if err != nil {
		s.t.Errorf("%s: %v", q.Image.Reference, err)
		return found
	}
	if got, err := os.ReadFile(found.Path); err != nil || string(got) != content {
		s.t.Errorf("%s: found %q, %v, want %q", q.Image.Reference, got, err, content)
	}
	want := Image{q.Image.Reference, digest("index of " + content), digest("manifest of " + content)}
	if found.Image != want || !reflect.DeepEqual(found.Object, described(content)) {
		s.t.Errorf("found %+v", found)
	}
	if got := s.reads(); got != reads {
		s.t.Errorf("%s: %d reads, want %d", q.Image.Reference, got, reads)
	}
	return found
}

// fails finds an error, with so many reads.
func (s *shelf) fails(q Question, want string, reads int) {
	s.t.Helper()
	_ = s.failure(q, want, reads)
}

// failure is fails, and returns the error.
func (s *shelf) failure(q Question, want string, reads int) error {
	s.t.Helper()
	s.reads()
	found, err := s.find(q)
	if err == nil || !strings.Contains(err.Error(), want) {
		s.t.Errorf("%v, want %q", err, want)
	}
	if q.Image.Digest == "" && found.Path != "" && len(q.Authorities) == 0 {
		s.t.Errorf("found %s with an error", found.Path)
	}
	if got := s.reads(); got != reads {
		s.t.Errorf("%d reads, want %d", got, reads)
	}
	return err
}

// test runs a test with fake time.
func test(t *testing.T, f func(s *shelf)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(newShelf(t)) })
}

// Always resolves a tag each time. The other policies use what the node has.
func TestPullPolicies(t *testing.T) {
	always, present, never := question("quay.io/a:v1", v1alpha1.PullAlways), question("quay.io/a:v1", v1alpha1.PullIfNotPresent), question("quay.io/a:v1", v1alpha1.PullNever)
	test(t, func(s *shelf) {
		t := s.t
		s.fails(never, "image quay.io/a:v1 isn't on this node, and the pull policy is Never", 0)
		s.gets(present, "first", 1)
		for _, q := range []Question{present, never, question("quay.io/a:v1", "")} {
			s.gets(q, "first", 0)
		}
		s.set(func() { s.content["quay.io/a:v1"] = "second" })
		s.gets(present, "first", 0)
		s.gets(never, "first", 0)
		s.gets(always, "second", 1)
		s.gets(present, "second", 0) // what was read last
		s.gets(never, "second", 0)
		if got := s.asked; len(got) != 0 {
			t.Errorf("asked %v", got)
		}
		s.gets(always, "second", 1)

		// The registry isn't available, and then the agent restarts.
		s.set(func() { s.down = "it is down" })
		for range 2 {
			s.fails(always, "image quay.io/a:v1: it is down", 1)
			s.gets(present, "second", 0)
			s.gets(never, "second", 0)
			s.restart()
		}
		s.fails(question("quay.io/b", v1alpha1.PullIfNotPresent), "image quay.io/b: it is down", 1)
		s.set(func() { s.down = "" })
		s.gets(always, "second", 1)
	})
}

// An object that is for another kernel, or that an earlier version stored, is adapted without the registry, with each
// policy. Those who wait share it.
func TestLibraryAdapts(t *testing.T) {
	for _, policy := range []v1alpha1.PullPolicy{v1alpha1.PullIfNotPresent, v1alpha1.PullNever, v1alpha1.PullAlways} {
		t.Run(string(policy), func(t *testing.T) {
			test(t, func(s *shelf) {
				t := s.t
				q := question("quay.io/a:v1", policy)
				first := s.gets(question("quay.io/a:v1", v1alpha1.PullIfNotPresent), "first", 1)
				old := first.Object
				old.Adapted = reader.Adapted{}
				if err := s.Store.put(strings.TrimSuffix(first.Path, objectSuffix)+recordSuffix, old); err != nil {
					t.Fatal(err)
				}
				for _, kernel := range []string{"6.1", "6.12"} {
					s.Store.Kernel = kernel
					s.set(func() { s.kernel, s.down = kernel, "it is down" })
					q.Image = first.Image // that of a running program
					if policy != v1alpha1.PullAlways {
						q.Image = Image{Reference: "quay.io/a:v1"}
					}
					s.reads()
					for range 2 {
						found, err := s.find(q)
						if err != nil {
							t.Fatal(err)
						}
						if content, err := os.ReadFile(found.Path); err != nil || string(content) != "first for "+kernel || found.Image != first.Image {
							t.Errorf("%+v with %q, %v", found, content, err)
						}
					}
					if reads := s.reads(); reads != 1 {
						t.Errorf("%d reads", reads)
					}
				}
			})
		})
	}
}

// If the object can't be adapted, or becomes another one, nothing is loaded, and what the store has stays.
func TestLibraryAdaptsNoOther(t *testing.T) {
	test(t, func(s *shelf) {
		t := s.t
		q := question("quay.io/a:v1", v1alpha1.PullIfNotPresent)
		first := s.gets(q, "first", 1)
		base := strings.TrimSuffix(first.Path, objectSuffix)
		s.Store.Kernel, s.kernel = "6.1", "6.1"
		old := first.Object
		old.Adapted.Format = 0
		if err := s.Store.put(base+recordSuffix, old); err != nil {
			t.Fatal(err)
		}
		s.set(func() { s.unfit = "it has no programs" })
		if err := s.failure(q, "image quay.io/a:v1: it has no programs", 1); !errors.As(err, new(*UnfitError)) {
			t.Errorf("%T", err)
		}
		s.set(func() { s.unfit, s.alter = "", func(a *reader.Answer) { a.Object.Digest = digest("another") } })
		s.fails(q, "answered about another object", 1)
		s.set(func() { s.alter = func(a *reader.Answer) { a.Object = nil } })
		s.fails(q, "answered about another object", 1)
		s.set(func() { s.alter = func(a *reader.Answer) { a.Object.Adapted.Kernel = "6.12" } })
		s.fails(q, "answered about another object", 1)
		s.set(func() { s.alter = func(a *reader.Answer) { a.Object.Adapted.Size++ } })
		s.fails(q, "its object is ", 1)
		s.set(func() { s.alter = nil })
		if found, err := s.find(q); err != nil || found.Path != base+adapted+objectSuffix {
			t.Errorf("%+v, %v", found, err)
		}
		if left := files(t, s.Store.Dir); len(left) != 4 {
			t.Errorf("%q is left", left)
		}
	})
}

// With Always, the object isn't read again if the node has it.
func TestAlwaysReadsTheObjectOnce(t *testing.T) {
	test(t, func(s *shelf) {
		t := s.t
		q := question("quay.io/a:v1", v1alpha1.PullAlways)
		first := s.gets(q, "first", 1)
		for range 2 {
			if _, err := s.find(q); err != nil {
				t.Error(err)
			}
			if got := s.asked[len(s.asked)-1]; got.Have != first.Manifest || got.Image != "quay.io/a:v1" {
				t.Errorf("asked for %+v", got)
			}
		}
	})
}

// Objects that were evicted or damaged are read again, in the version that the tag leads to,
// or, for a running program, by its digest.
func TestObjectsThatAreGone(t *testing.T) {
	for name, lose := range map[string]func(path string) error{
		"evicted": os.Remove,
		"damaged": func(path string) error { return errors.Join(os.Chmod(path, 0o600), os.Truncate(path, 2)) },
	} {
		for reference, want := range map[string]string{"quay.io/a:v1": "second", "quay.io/a:v1@" + digest("index of first"): "first"} {
			t.Run(name+" "+reference, func(t *testing.T) {
				test(t, func(s *shelf) {
					t := s.t
					q := question(reference, v1alpha1.PullIfNotPresent)
					found := s.gets(q, "first", 1)
					s.set(func() { s.content["quay.io/a:v1"], s.content["quay.io/a:old"] = "second", "first" })
					if err := lose(found.Path); err != nil {
						t.Fatal(err)
					}
					q.PullPolicy = v1alpha1.PullNever
					s.fails(q, "isn't on this node, and the pull policy is Never", 0)
					q.PullPolicy = v1alpha1.PullIfNotPresent
					s.set(func() { s.down = "it is down" })
					s.fails(q, "it is down", 1)
					s.set(func() { s.down = "" })
					s.gets(q, want, 1)
					q.Image = found.Image // that of a running program
					s.gets(q, "first", map[string]int{"first": 0, "second": 1}[want])
				})
			})
		}
	}
}

// Many owners with the same image share a read, whether it succeeds or fails. Later is called
// once for each.
func TestSharedReads(t *testing.T) {
	for name, c := range map[string]struct {
		policy v1alpha1.PullPolicy
		down   string
		again  int // reads for one that asks later
	}{
		"IfNotPresent": {v1alpha1.PullIfNotPresent, "", 0},
		"Always":       {v1alpha1.PullAlways, "", 1},
		"error":        {v1alpha1.PullIfNotPresent, "it is down", 1},
	} {
		t.Run(name, func(t *testing.T) {
			test(t, func(s *shelf) {
				t := s.t
				s.down = c.down
				const owners = 20
				q := question("quay.io/a:v1", c.policy)
				var told atomic.Int32
				start := time.Now()
				for range owners {
					q.Owner = asker("a")
					_, err := s.Find(t.Context(), q, func() { told.Add(1) })
					if pending := (*PendingError)(nil); !errors.As(err, &pending) || pending.Since != start || pending.Reference != "quay.io/a:v1" {
						t.Fatalf("%v", err)
					}
				}
				if took := time.Since(start); took > 0 {
					t.Errorf("it took %s", took)
				}
				<-time.After(2 * lan)
				synctest.Wait()
				// The queue takes some time.
				for range owners {
					<-time.After(holds / (owners + 1))
					found, err := s.Find(t.Context(), q, func() { t.Error("told again") })
					if got := fmt.Sprint(err); c.down == "" && (err != nil || found.Path == "") || c.down != "" && got != "image quay.io/a:v1: it is down" {
						t.Errorf("%+v, %v", found, err)
					}
				}
				if got := s.reads(); told.Load() != owners || got != 1 {
					t.Errorf("told %d times, %d reads", told.Load(), got)
				}
				if _, err := s.find(q); (err != nil) != (c.down != "") {
					t.Error(err)
				}
				if got := s.reads(); got != c.again {
					t.Errorf("%d reads for one more, want %d", got, c.again)
				}
			})
		})
	}
}

// An owner that asks several times is told once.
func TestAnOwnerIsToldOnce(t *testing.T) {
	test(t, func(s *shelf) {
		q := question("quay.io/a:v1", "")
		var told atomic.Int32
		for range 5 {
			_, _ = s.Find(s.t.Context(), q, func() { told.Add(1) })
		}
		<-time.After(2 * lan)
		synctest.Wait()
		if told.Load() != 1 {
			s.t.Errorf("told %d times", told.Load())
		}
	})
}

// A namespace's objects whose registry never answers take a bounded number of goroutines, no matter how many there are, and
// how often they ask. Each is read in the end. Others don't wait for all of them, neither in the namespace nor elsewhere.
func TestReadsOfANamespaceAreBounded(t *testing.T) {
	test(t, func(s *shelf) {
		const objects = 600
		ctx, stop := context.WithCancel(s.t.Context())
		defer stop()
		ready, asked := make(chan Question, 2*objects), map[string]int{}
		s.Read = func(ctx context.Context, r *reader.Request, files *Files) reader.Answer {
			if strings.HasPrefix(r.Image, "quay.io/") {
				return s.serve(ctx, r, files)
			}
			select {
			case <-ctx.Done():
			case <-time.After(timeout):
				s.set(func() { asked[r.Image]++ })
			}
			return reader.Answer{Error: "it doesn't answer"}
		}
		ask := func(q Question) {
			_, _ = s.Find(ctx, q, func() { ready <- q })
		}
		all := make([]Question, objects)
		before := len(bubbleStacks())
		for n := range all {
			all[n] = question(fmt.Sprintf("silent%d.example/%d", n, n), "")
		}
		retry := func() { // those that are told ask again
			for end := time.After(timeout); ; {
				select {
				case q := <-ready:
					ask(q)
				case <-end:
					synctest.Wait() // what ended at this moment can be about to return
					if got := len(bubbleStacks()) - before; got > 8*maxReading {
						s.t.Errorf("%d goroutines", got)
					}
					s.runs.mu.Lock()
					if n := s.runs.of("a"); len(n.waiting[fast])+len(n.waiting[slow]) > objects+1 {
						s.t.Errorf("%d and %d objects wait", len(n.waiting[fast]), len(n.waiting[slow]))
					}
					s.runs.mu.Unlock()
					return
				}
			}
		}
		for _, q := range all {
			ask(q)
		}
		for _, namespace := range []string{"b", "a"} {
			near := question("quay.io/a:v1", v1alpha1.PullAlways)
			near.Owner.Namespace = namespace
			done := make(chan struct{})
			start := time.Now()
			go func() {
				defer close(done)
				if _, err := s.find(near); err != nil || time.Since(start) > timeout {
					s.t.Errorf("an object of namespace %s waited for %s, %v", namespace, time.Since(start), err)
				}
			}()
			retry()
			<-done
		}
		for range 3 {
			for _, q := range all {
				ask(q)
			}
			retry()
		}
		for answered := 0; answered < objects; {
			ask(<-ready)
			s.set(func() { answered = len(asked) })
		}
		stop()
		synctest.Wait()
		if left := bubbleStacks(); len(left) > before {
			s.t.Errorf("%d goroutines are left: %s", len(left)-before, strings.Join(left, "\n\n"))
		}
	})
}

// An image whose registry is slow isn't delayed for a namespace because another one, whose images don't respond there, asked for
// it first.
func TestAReadThatAnotherNamespaceStarted(t *testing.T) {
	test(t, func(s *shelf) {
		s.set(func() { s.content["slow.example/a:v1"] = "a" })
		s.Read = func(ctx context.Context, r *reader.Request, files *Files) reader.Answer {
			if r.Image == "slow.example/a:v1" {
				return s.serve(ctx, r, files)
			}
			silent(ctx)
			return reader.Answer{Error: "it doesn't answer"}
		}
		ask := func(namespace, image string) Question {
			q := question(image, "")
			q.Owner = asker(namespace)
			_, _ = s.Find(s.t.Context(), q, func() {})
			return q
		}
		ask("greedy", "slow.example/0")
		<-time.After(timeout)
		for n := range maxReading - 1 {
			ask("greedy", fmt.Sprint("slow.example/", n))
		}
		synctest.Wait() // until they have the places
		ask("greedy", "slow.example/a:v1")
		<-time.After(longSlice)
		q := ask("b", "slow.example/a:v1")
		<-time.After(2 * lan)
		synctest.Wait()
		if found, err := s.Find(s.t.Context(), q, nil); err != nil || found.Path == "" {
			s.t.Errorf("%+v, %v", found, err)
		}
		<-time.After(maxReading * timeout)
	})
}

// bubbleStacks returns the stacks of the goroutines in the bubble of the test, without those that the runtime starts for itself,
// such as for cleanups of files.
func bubbleStacks() []string {
	const most = 4 << 20
	all := make([]byte, most)
	var stacks []string
	for stack := range strings.SplitSeq(string(all[:runtime.Stack(all, true)]), "\n\n") {
		if head, _, _ := strings.Cut(stack, "\n"); strings.Contains(head, "synctest bubble") {
			stacks = append(stacks, stack)
		}
	}
	return stacks
}

// An owner that was told that there is a place gets it, although others ask before it does. The place of one that doesn't
// come is free after a while.
func TestPlacesAreKeptForThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRuns(func() {})
		var end []chan struct{}
		var mu sync.Mutex
		told := map[string]bool{}
		join := func(name string) (started bool, since time.Time) {
			done, owner := make(chan struct{}), program.Key{Namespace: "a", Name: name}
			before := s.of("a").reading[fast]
			_, since = s.join(t.Context(), owner, &run{key: name}, func(context.Context) (Bytecode, error) {
				<-done
				return Bytecode{}, nil
			}, func() {
				mu.Lock()
				defer mu.Unlock()
				told[name] = true
			})
			if started = s.of("a").reading[fast] > before; started {
				end = append(end, done)
			}
			return started, since
		}
		for n := range maxReading {
			join(fmt.Sprint(n))
		}
		begin := time.Now()
		join("first")
		join("second")
		<-time.After(time.Second)
		close(end[0])
		synctest.Wait()
		if started, _ := join("third"); started || !told["first"] || told["second"] {
			t.Errorf("one that asks for the first time got the place: %v, told %v", started, told)
		}
		if started, since := join("first"); !started || !since.Equal(time.Now()) {
			t.Errorf("the first one got its place: %v", started)
		}
		close(end[1])
		synctest.Wait()
		if started, _ := join("third"); started || !told["second"] {
			t.Errorf("the place of the second one was taken: %v, told %v", started, told)
		}
		<-time.After(2 * holds)
		if started, since := join("third"); !started {
			t.Errorf("the place of one that doesn't come isn't free, since %s", since.Sub(begin))
		}
		for _, done := range end[2:] {
			close(done)
		}
		synctest.Wait()
		if len(s.namespaces) != 1 || len(s.of("a").waiting[fast]) > 0 {
			t.Errorf("%+v waits", s.of("a").waiting)
		}
	})
}

// No place is kept for an owner that doesn't need one anymore, because another one has its image read.
func TestPlacesAreNotKeptForThoseWhoHaveARead(t *testing.T) {
	for name, fromStore := range map[string]bool{"from another's read": false, "from the store": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newRuns(func() {})
				end := map[string]chan struct{}{}
				var mu sync.Mutex
				told := map[string]int{}
				join := func(name, image string) bool {
					done, before := make(chan struct{}), s.of("a").reading[fast]
					wanted := &run{key: image, image: Image{Reference: image}}
					s.join(t.Context(), program.Key{Namespace: "a", Name: name}, wanted, func(context.Context) (Bytecode, error) {
						<-done
						return Bytecode{}, nil
					}, func() {
						mu.Lock()
						defer mu.Unlock()
						told[name]++
					})
					started := s.of("a").reading[fast] > before
					if started {
						end[name] = done
					}
					return started
				}
				for n := range maxReading {
					join(fmt.Sprint(n), fmt.Sprint(n))
				}
				join("first", "shared")
				join("second", "shared")
				join("third", "other")
				for n := range 2 {
					close(end[fmt.Sprint(n)])
					delete(end, fmt.Sprint(n))
				}
				synctest.Wait()
				if told["first"] != 1 || told["second"] != 1 || told["third"] != 0 {
					t.Errorf("told %v", told)
				}
				if !join("first", "shared") {
					t.Error("the first one got no place")
				}
				if fromStore {
					s.leave(program.Key{Namespace: "a", Name: "second"}, Image{Reference: "shared"})
				} else if join("second", "shared") {
					t.Error("the same image is read twice")
				}
				if told["third"] != 1 || !join("third", "other") {
					t.Errorf("the place of the second one is kept: told %v", told)
				}
				for _, done := range end {
					close(done)
				}
				synctest.Wait()
			})
		})
	}
}

// If a read gives way because the namespace that started it has too many slow ones, a namespace that hasn't can start it.
func TestAReadThatGivesWay(t *testing.T) {
	s := newRuns(func() {})
	told := map[string]bool{}
	r := &run{key: "k", namespaces: []string{"full"}, later: map[program.Key]func(){}}
	for _, namespace := range []string{"full", "free"} {
		r.later[asker(namespace)] = func() { told[namespace] = true }
	}
	s.byKey[r.key] = r
	s.of("full").reading = [speeds]int{fast: 1, slow: maxReading}
	if s.slow(r) {
		t.Error("there is no place")
	}
	for _, tell := range s.end(r, Bytecode{}, fmt.Errorf("image x: %w", errCrowded)) {
		tell()
	}
	if !told["free"] || told["full"] || len(s.byKey) > 0 || len(s.of("full").waiting[slow]) != 1 {
		t.Errorf("told %v, %d runs, %+v", told, len(s.byKey), s.of("full"))
	}
}

// What was read is in memory for a while, and not forever.
func TestResultsAreBounded(t *testing.T) {
	test(t, func(s *shelf) {
		for n := range 2 * maxResults {
			if _, err := s.find(question(fmt.Sprintf("quay.io/absent%d", n), "")); err == nil {
				s.t.Fatal("found")
			}
			if got := s.results(); got > maxResults+1 {
				s.t.Fatalf("%d results", got)
			}
		}
		<-time.After(2 * holds)
		s.fails(question("quay.io/absent", ""), "not found", 1)
		if got := s.results(); got != 1 {
			s.t.Errorf("%d results", got)
		}
		if found, err := s.find(question("quay.io/a:v1", "")); err != nil || found.Object.Digest == "" {
			s.t.Errorf("found %+v, %v", found, err)
		}
		for _, r := range s.runs.byKey {
			if !reflect.DeepEqual(r.found.Object, reader.Object{}) {
				s.t.Errorf("the description of %s, which the store has, is in memory: %+v", r.found.Reference, r.found.Object)
			}
		}
	})
}

// A registry that asks to wait isn't asked before, by no object with the same credentials. The message stays the same.
func TestBusyRegistries(t *testing.T) {
	test(t, func(s *shelf) {
		s.down, s.retryAfter = "registry quay.io:443 limits the number of requests", 120
		start := time.Now()
		q := question("quay.io/a:v1", "")
		said := s.failure(q, "image quay.io/a:v1: registry quay.io:443 limits the number of requests; it accepts requests again at ", 1)
		until := start.Add(lan + 120*time.Second)
		if e := (*BusyError)(nil); !errors.As(said, &e) || !e.Until.Equal(until) {
			s.t.Errorf("%v, want until %s", said, until)
		}
		for range 10 {
			<-time.After(holds + time.Second)
			if err := s.failure(q, "limits the number of requests", 0); err.Error() != said.Error() {
				s.t.Errorf("%v, want %v", err, said)
			}
		}
		s.fails(question("quay.io/b", ""), "limits the number of requests", 0)
		other := question("quay.io/a:v1", "")
		other.Credentials = func() (reader.Credentials, error) { return reader.Credentials{Username: "u", Password: "p"}, nil }
		s.fails(other, "limits the number of requests", 1)
		s.set(func() { s.down, s.retryAfter = "", 0 })
		<-time.After(time.Until(until) + time.Second)
		s.gets(q, "first", 1)
	})
}

// A pull Secret without an entry for the registry is named if the registry requires credentials, and only to those who use it.
func TestSecretsWithoutAnEntry(t *testing.T) {
	test(t, func(s *shelf) {
		without, with := question("quay.io/a:v1", ""), question("quay.io/a:v1", "")
		with.Credentials = func() (reader.Credentials, error) {
			return reader.Credentials{}, &NoEntryError{types.NamespacedName{Namespace: "a", Name: "pull"}, "quay.io"}
		}
		s.down, s.alter = "registry quay.io:443 requires credentials", func(a *reader.Answer) { a.NeedsCredentials = a.Error != "" }
		s.fails(with, "image quay.io/a:v1: pull Secret a/pull has no entry for quay.io, and the registry refuses access without credentials", 1)
		s.fails(without, "image quay.io/a:v1: registry quay.io:443 requires credentials", 1)
		s.set(func() { s.alter = nil })
		<-time.After(holds + time.Second)
		s.fails(with, "image quay.io/a:v1: registry quay.io:443 requires credentials", 1)
		s.set(func() { s.down = "" })
		<-time.After(holds + time.Second)
		s.gets(with, "first", 1)
	})
}

// Who waited, but asks too late, gets what is there then.
func TestResultsExpire(t *testing.T) {
	test(t, func(s *shelf) {
		t := s.t
		q := question("quay.io/a:v1", v1alpha1.PullAlways)
		for range 3 {
			_, _ = s.Find(t.Context(), q, func() {})
		}
		<-time.After(holds + time.Second)
		s.set(func() { s.content["quay.io/a:v1"] = "second" })
		s.gets(q, "second", 1)
	})
}

// What two owners get about one image differs if one of them also needs the object, or has
// another reference, although the registry is asked the same.
func TestResultsAreNotMixedUp(t *testing.T) {
	test(t, func(s *shelf) {
		t := s.t
		s.content["quay.io/a:v2"] = "first"
		for _, reference := range []string{"quay.io/a:v1", "quay.io/a:v2"} {
			s.gets(question(reference, ""), "first", 1)
		}
		loads := signedBy(question("quay.io/a:v1", ""))
		other := signedBy(question("quay.io/a:v2", ""))
		running := loads
		running.Image, running.Object = Image{"quay.io/a:v1", digest("index of first"), digest("manifest of first")}, false
		for range 2 {
			for _, q := range []Question{running, loads, other, loads, running} {
				found, err := s.find(q)
				if err != nil || found.Reference != q.Image.Reference || q.Object && found.Path == "" || len(found.Signatures) != 1 {
					t.Errorf("%+v, %v", found, err)
				}
			}
		}
	})
}

// Errors of the reader, and answers that can't be right.
func TestBadAnswers(t *testing.T) {
	q := question("quay.io/a:v1", v1alpha1.PullIfNotPresent)
	pinned := question("quay.io/a:v1@"+digest("index of first"), v1alpha1.PullIfNotPresent)
	running := q
	running.Image = Image{"quay.io/a:v1", digest("index of first"), digest("manifest of first")}
	for name, c := range map[string]struct {
		question Question
		alter    func(*reader.Answer)
		want     string
	}{
		"an error":          {q, func(a *reader.Answer) { *a = reader.Answer{Error: "no route"} }, "image quay.io/a:v1: no route"},
		"a path as digest":  {q, func(a *reader.Answer) { a.Digest = "../x" }, `"../x" is not a digest`},
		"a path as digests": {q, func(a *reader.Answer) { a.Digest, a.Manifest = "sha256:../../x", "sha256:../../x" }, `"sha256:../../x" is not a digest`},
		"no digests":        {q, func(a *reader.Answer) { a.Digest, a.Manifest = "", "" }, `"" is not a digest`},
		"nothing":           {q, func(a *reader.Answer) { *a = reader.Answer{} }, "image quay.io/a:v1: its object isn't in the store"},
		"no object":         {q, func(a *reader.Answer) { a.Object = nil }, "image quay.io/a:v1: its object isn't in the store"},
		"another object":    {q, func(a *reader.Answer) { a.Object.Digest = digest("other") }, "store image quay.io/a:v1: its object is " + digest("first") + " with 5 bytes instead of " + digest("other") + " with 5"},
		"half an object":    {q, func(a *reader.Answer) { a.Object.Size = 9 }, "with 5 bytes instead of " + digest("first") + " with 9"},
		"another image":     {pinned, func(a *reader.Answer) { a.Digest = digest("evil") }, "bpfman-reader answered about another one"},
		"another manifest":  {running, func(a *reader.Answer) { a.Manifest = digest("evil") }, "bpfman-reader answered about another one"},
		"another of them":   {running, func(a *reader.Answer) { a.Digest = digest("evil") }, "bpfman-reader answered about another one"},
	} {
		t.Run(name, func(t *testing.T) {
			test(t, func(s *shelf) {
				t := s.t
				s.alter = c.alter
				for range 2 { // errors aren't kept
					err := s.failure(c.question, c.want, 1)
					if unfit := (*UnfitError)(nil); errors.As(err, &unfit) {
						t.Errorf("%v is unfit", err)
					}
					if left := files(t, s.Store.Dir); len(left) > 0 {
						t.Errorf("%q is left", left)
					}
				}
				s.set(func() { s.alter = nil })
				s.gets(c.question, "first", 1)
			})
		})
	}
}

// An image that bpfman doesn't accept has an error of its own.
func TestUnfitImages(t *testing.T) {
	test(t, func(s *shelf) {
		t := s.t
		var results []string
		s.Observe = func(took time.Duration, result string) { results = append(results, fmt.Sprint(result, " ", took)) }
		s.alter = func(a *reader.Answer) { *a = reader.Answer{Error: "it has no object", Unfit: true} }
		q := question("quay.io/a:v1", "")
		unfit := (*UnfitError)(nil)
		if err := s.failure(q, "image quay.io/a:v1: it has no object", 1); !errors.As(err, &unfit) {
			t.Errorf("%T", err)
		}
		s.set(func() { s.alter, s.down = nil, "it is down" })
		s.fails(q, "it is down", 1)
		s.set(func() { s.down = "" })
		s.gets(q, "first", 1)
		if want := []string{"unfit 20ms", "failed 20ms", "read 20ms"}; !slices.Equal(results, want) {
			t.Errorf("observed %q", results)
		}
	})
}

// Credentials are only read if they are needed: for the registry, and for signatures.
func TestCredentialsAreReadIfNeeded(t *testing.T) {
	test(t, func(s *shelf) {
		t := s.t
		calls := 0
		secret := errors.New("get pull Secret a/b: not found")
		q := question("quay.io/a:v1", v1alpha1.PullIfNotPresent)
		q.Credentials = func() (reader.Credentials, error) { calls++; return reader.Credentials{}, secret }
		if _, err := s.find(q); !errors.Is(err, secret) || s.reads() != 0 {
			t.Errorf("%v", err)
		}
		s.gets(question("quay.io/a:v1", ""), "first", 1)
		calls = 0
		s.gets(q, "first", 0)
		never := q
		never.Image.Reference, never.PullPolicy = "quay.io/b", v1alpha1.PullNever
		s.fails(never, "isn't on this node", 0)
		if calls > 0 {
			t.Errorf("read %d times", calls)
		}
		found, err := s.find(signedBy(q))
		if !errors.Is(err, secret) || found.Path == "" || s.reads() != 0 {
			t.Errorf("%+v, %v", found, err)
		}
	})
}

// Nobody gets what another user's credentials found out about signatures. The content of an
// image that the node has is for everyone on the node.
func TestFindingsOfUsers(t *testing.T) {
	test(t, func(s *shelf) {
		t := s.t
		s.signers[digest("index of first")] = "team"
		as := func(user, password string) Question {
			q := signedBy(question("quay.io/a:v1", ""))
			q.Credentials = func() (reader.Credentials, error) { return reader.Credentials{Username: user, Password: password}, nil }
			return q
		}
		questions := []Question{as("", ""), as("u", "p"), as("u", "q"), as("v", "p"), signedBy(as("u", "p"), "key"), signedBy(as("u", "p"), "key", "rotated")}
		attested := as("u", "p")
		attested.Attestations = []reader.Attestation{{PredicateType: "t", Authorities: []string{"p/a"}}}
		questions = append(questions, attested)
		for n := range 2 * len(questions) {
			found := s.gets(questions[n%len(questions)], "first", max(0, min(1, len(questions)-n)))
			if len(found.Signatures) != 1 || found.Signatures[0].Signer != "team" {
				t.Errorf("%+v", found.Findings)
			}
		}
		seen := map[string]bool{}
		if _, err := s.find(as("w", "s3cr3t")); err != nil {
			t.Error(err)
		}
		for _, r := range s.asked {
			seen[r.Credentials.Username+":"+r.Credentials.Password] = true
		}
		if want := map[string]bool{"w:s3cr3t": true}; !maps.Equal(seen, want) {
			t.Errorf("sent %v", seen)
		}
		for _, file := range files(t, s.Store.Dir) {
			if content, err := os.ReadFile(s.Store.Dir + "/" + file); err != nil || strings.Contains(string(content)+file, "s3cr3t") {
				t.Errorf("%s contains a password: %v", file, err)
			}
		}
	})
}

// Complete findings survive restarts without a registry. Others are looked for again.
func TestFindingsAreKept(t *testing.T) {
	signed := reader.Finding{Authority: "p/a", Signer: "s"}
	for name, c := range map[string]struct {
		findings Findings
		again    int // further reads after a while, and after a restart
	}{
		"signed":       {Findings{Signatures: []reader.Finding{signed}}, 0},
		"nothing":      {Findings{}, 0},
		"not by all":   {Findings{Signatures: []reader.Finding{signed, {Authority: "p/b", Reason: "none"}}}, 1},
		"not attested": {Findings{Signatures: []reader.Finding{signed}, Attestations: []reader.Finding{{Authority: "p/a"}}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			test(t, func(s *shelf) {
				t := s.t
				s.alter = func(a *reader.Answer) { a.Signatures, a.Attestations = c.findings.Signatures, c.findings.Attestations }
				q := signedBy(question("quay.io/a:v1", ""))
				s.gets(q, "first", 1)
				s.gets(q, "first", c.again) // by its digest now
				s.gets(q, "first", 0)
				s.gets(q, "first", 0)
				<-time.After(holds + time.Second)
				found := s.gets(q, "first", c.again)
				if !reflect.DeepEqual(found.Findings, c.findings) {
					t.Errorf("%+v", found.Findings)
				}
				s.set(func() { s.down = "it is down" })
				s.restart()
				found, err := s.find(q)
				switch {
				case found.Path == "":
					t.Errorf("no object: %v", err)
				case c.again == 0 && (err != nil || !reflect.DeepEqual(found.Findings, c.findings)):
					t.Errorf("%+v, %v", found, err)
				case c.again > 0 && (err == nil || !reflect.DeepEqual(found.Findings, Findings{})):
					t.Errorf("%+v, %v", found, err)
				}
			})
		})
	}
}

// If the agent stops, reads end, and everyone is told.
func TestLibraryEnds(t *testing.T) {
	test(t, func(s *shelf) {
		t := s.t
		ctx, stop := context.WithCancel(t.Context())
		var ended, told atomic.Int32
		s.Read = func(ctx context.Context, _ *reader.Request, _ *Files) reader.Answer {
			<-ctx.Done()
			ended.Add(1)
			return reader.Answer{Error: "interrupted"}
		}
		const images = 3
		for n := range images {
			for range 2 {
				if _, err := s.Find(ctx, question(fmt.Sprint("quay.io/", n), ""), func() { told.Add(1) }); err == nil {
					t.Error("found")
				}
			}
		}
		<-time.After(2 * slice)
		stop()
		synctest.Wait()
		if ended.Load() != images || told.Load() != 2*images {
			t.Errorf("%d ended, %d told", ended.Load(), told.Load())
		}
		s.fails(question("quay.io/0", ""), "image quay.io/0: ", 0)
		if left := files(t, s.Store.Dir); len(left) > 0 {
			t.Errorf("%q is left", left)
		}
	})
}

// A store that can't be written is an error about the image, and not about the registry.
func TestLibraryWithoutSpace(t *testing.T) {
	test(t, func(s *shelf) {
		s.Store.Limit = 3
		s.fails(question("quay.io/a:v1", ""), "store image quay.io/a:v1: the node's store of bytecode is full", 1)
		s.Store.Limit, s.Store.Dir = 1000, "/proc/none"
		s.fails(question("quay.io/a:v1", ""), "image quay.io/a:v1: ", 0)
	})
}

// Many images, owners, and restarts at the same time. The race detector checks them.
func TestLibraryConcurrently(t *testing.T) {
	test(t, func(s *shelf) {
		t := s.t
		const images = 30
		for n := range images {
			s.content[fmt.Sprintf("quay.io/%d", n)] = fmt.Sprintf("%20d", n)
		}
		s.Store.Limit = 300 // half of them
		var all sync.WaitGroup
		for n := range 4 * images {
			all.Go(func() {
				q := signedBy(question(fmt.Sprintf("quay.io/%d", n%images), []v1alpha1.PullPolicy{v1alpha1.PullAlways, v1alpha1.PullIfNotPresent}[n%2]))
				for range 10 {
					done := make(chan struct{})
					found, err := s.Find(t.Context(), q, func() { close(done) })
					if pending := (*PendingError)(nil); errors.As(err, &pending) {
						<-done
						continue
					}
					if err != nil && !strings.HasSuffix(err.Error(), "its object isn't in the store") { // evicted since
						t.Error(err)
					}
					if err == nil && found.Object.Digest != digest(s.content[q.Image.Reference]) {
						t.Errorf("%+v", found)
					}
				}
			})
		}
		all.Wait()
		if s.Store.Size() > s.Store.Limit {
			t.Errorf("%d bytes", s.Store.Size())
		}
	})
}
