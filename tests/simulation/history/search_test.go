// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package history

import (
	"flag"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/internal/shrink"
	"github.com/bpfman/bpfman-operator/tests/simulation"
)

var (
	duration = flag.Duration("search", 5*time.Second, "how long to search with new seeds")
	seed     = flag.Uint64("seed", 0, "the first seed; 0 stands for the time")
	each     = flag.Uint64("each", 0, "the seed of the history for one fault at each step")
	verbose  = flag.Bool("log", false, "print what the components log")
	goOn     = flag.Bool("go-on", false, "go on after a history that breaks an invariant, and don't shorten it")
	shorten  = flag.Bool("shorten", true, "shorten the first history that breaks an invariant")
	having   = flag.String("having", "", "play only histories with a fault or an operation whose name contains this")
	keep     = flag.String("keep", "", "the directory for recordings of what is found")
)

// TestSearch plays random plans, and shortens those that break an invariant.
func TestSearch(t *testing.T) {
	if *verbose {
		logger = funcr.New(func(prefix, text string) { fmt.Println(time.Now().Format("15:04:05.000"), prefix, text) }, funcr.Options{Verbosity: 1})
	}
	tally := NewTally()
	first := *seed
	if first == 0 {
		first = uint64(time.Now().UnixNano())
	}
	var mu sync.Mutex
	var found []string
	start, seed := time.Now(), first
	next := func() (p Plan, more bool) {
		mu.Lock()
		defer mu.Unlock()
		for time.Since(start) < *duration {
			p, seed = Draw(seed), seed+1
			if p.has(*having) {
				return p, true
			}
		}
		return p, false
	}
	playAll(t, next, tally, func(t *testing.T, p Plan, broken *BrokenError) {
		t.Helper()
		if !*goOn {
			report(t, p, broken, tally)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		found = append(found, fmt.Sprintf("seed %d: %v", p.Seed, broken))
		fmt.Printf("%s\n%s\n", found[len(found)-1], p)
	})
	if len(found) > 0 {
		t.Errorf("%d histories break an invariant:\n%s", len(found), strings.Join(found, "\n"))
	}
	t.Log(tally)
}

// playAll plays plans, one on each processor: a history mostly waits for one goroutine at a time. After one that broke an
// invariant, no other plan begins, unless all are to be listed.
func playAll(t *testing.T, next func() (Plan, bool), tally *Tally, broke func(*testing.T, Plan, *BrokenError)) {
	t.Helper()
	failed, over := t.Failed, atomic.Bool{}
	t.Run("plans", func(t *testing.T) {
		for n := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(n), func(t *testing.T) {
				t.Parallel()
				for p, more := next(); more && !over.Load() && !failed(); p, more = next() {
					if broken := Play(t, p, Invariants, tally); broken != nil && (*goOn || !over.Swap(true)) {
						broke(t, p, broken)
					}
				}
			})
		}
	})
}

// replays is how often a plan is played to find out whether it breaks an invariant.
const replays = 3

func fails(t *testing.T, p Plan, invariant string, tally *Tally) *BrokenError {
	t.Helper()
	for range replays {
		if broken := Play(t, p, Invariants, tally); broken != nil && broken.Invariant.Name == invariant {
			return broken
		}
	}
	return nil
}

// TestEachStep plays a history with one fault at a time, at each step of the same history without a fault: at each write of the
// API server, and at each call of a daemon. A step is the nth event of its actor, verb and resource.
func TestEachStep(t *testing.T) {
	if *each == 0 {
		t.Skip("-each isn't set")
	}
	reference := Draw(*each)
	reference.Steps = slices.DeleteFunc(reference.Steps, func(s Step) bool { return s.Fault != nil })
	tally := NewTally()
	steps := tally.record(func() {
		if broken := Play(t, reference, Invariants, tally); broken != nil {
			report(t, reference, broken, tally)
		}
	})
	start := time.Now()
	var faults []Step
	for _, at := range steps {
		for _, kind := range Faults {
			isCall := at.Resource == simulation.ResourceDaemon
			if isCall && !kind.Calls || !isCall && !kind.Requests || at.Done && kind.Before {
				continue
			}
			faults = append(faults, Step{Fault: &Fault{Kind: kind.Name, For: metav1.Duration{Duration: 30 * time.Second}}, At: &at})
		}
	}
	var mu sync.Mutex
	played := 0
	next := func() (Plan, bool) {
		mu.Lock()
		defer mu.Unlock()
		if played == len(faults) || time.Since(start) > *duration {
			return Plan{}, false
		}
		p := reference
		p.Steps = slices.Insert(slices.Clone(reference.Steps), 0, faults[played])
		played++
		return p, true
	}
	playAll(t, next, tally, func(t *testing.T, p Plan, broken *BrokenError) {
		t.Helper()
		report(t, p, broken, tally)
	})
	t.Logf("%d of %d faults at %d steps: %s", played, len(faults), len(steps), tally)
}

// recordings is the directory of recordings.
const recordings = "../recordings"

// TestRecordings plays what broke an invariant before. As the order of goroutines isn't recorded, it does so several times.
func TestRecordings(t *testing.T) { //nolint:tparallel // they are played before the search
	files, err := filepath.Glob(recordings + "/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	tally := NewTally()
	t.Cleanup(func() { t.Log(tally) })
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) { replay(t, file, tally) })
	}
}

func replay(t *testing.T, file string, tally *Tally) {
	t.Helper()
	t.Parallel()
	p, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	for range replays {
		if broken := Play(t, p, Invariants, tally); broken != nil {
			t.Fatalf("%s\n%v\n%s", p.Story, broken, strings.Join(broken.Log, "\n"))
		}
	}
}

// report shortens a plan, and saves it.
func report(t *testing.T, p Plan, broken *BrokenError, tally *Tally) {
	t.Helper()
	if !*shorten {
		t.Errorf("seed %d: %v", p.Seed, broken)
		return
	}
	if again := fails(t, p, broken.Invariant.Name, tally); again != nil {
		p.Steps = shrink.Sequence(p.Steps, func(steps []Step) bool {
			less := p
			less.Steps = steps
			found := fails(t, less, broken.Invariant.Name, tally)
			if found != nil {
				broken = found
			}
			return found != nil
		})
	}
	p.Story = broken.Error()
	t.Errorf("seed %d: %v\n%s\nplan:", p.Seed, broken, strings.Join(broken.Log, "\n"))
	for _, s := range p.Steps {
		t.Logf("  %s", s)
	}
	if *keep != "" {
		if err := p.Save(*keep + "/" + strings.ReplaceAll(broken.Invariant.Name, " ", "-") + ".yaml"); err != nil {
			t.Error(err)
		}
	}
}
