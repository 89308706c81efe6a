// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package history

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"

	"github.com/bpfman/bpfman-operator/internal/shrink"
)

var (
	duration = flag.Duration("search", 5*time.Second, "how long to search with new seeds")
	seed     = flag.Uint64("seed", 0, "the first seed; 0 stands for the time")
	verbose  = flag.Bool("log", false, "print what the components log")
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
		first = uint64(time.Now().UnixNano()) //nolint:gosec // any number will do
	}
	for start, n := time.Now(), first; time.Since(start) < *duration; n++ {
		p := Draw(n, tally.Seen())
		if broken := Play(t, p, Invariants, tally); broken != nil {
			report(t, p, broken, tally)
		}
	}
	t.Log(tally)
}

// replays is how often a plan is played to find out whether it breaks an invariant.
const replays = 3

func fails(t *testing.T, p Plan, invariant string, tally *Tally) *Broken {
	t.Helper()
	for range replays {
		if broken := Play(t, p, Invariants, tally); broken != nil && broken.Invariant.Name == invariant {
			return broken
		}
	}
	return nil
}

// report shortens a plan, and saves it.
func report(t *testing.T, p Plan, broken *Broken, tally *Tally) {
	t.Helper()
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
