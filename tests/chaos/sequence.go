// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package chaos

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"

	"github.com/bpfman/bpfman-operator/internal/shrink"
)

// Sequence draws steps from a seed. The same seed, nodes, and abilities result in the
// same steps.
type Sequence struct {
	r *rand.Rand
	m *Model
	// Stretch is a factor for the duration of faults.
	Stretch int
	// Without contains names of operations and faults that aren't drawn.
	Without []string
}

// NewSequence returns a sequence for a cluster in the state of the model.
func NewSequence(seed uint64, m *Model, stretch int) *Sequence {
	return &Sequence{r: rand.New(rand.NewPCG(seed, seed)), m: m, Stretch: max(stretch, 1)} //nolint:gosec // it must be reproducible
}

// Limits of a burst.
const (
	mostOperations = 5
	// longestPause is the maximum delay between two steps, in milliseconds.
	longestPause = 1500
)

// Burst draws the steps of the next burst, and applies them to the model.
func (q *Sequence) Burst() []Step {
	var steps []Step
	for range 1 + q.r.IntN(mostOperations) {
		if step, ok := q.operation(); ok {
			steps = append(steps, step)
		}
		if q.m.changed[alone] {
			break
		}
	}
	// Faults that follow find a node that is cut off.
	first := 0
	if q.m.changed[alone] {
		first = len(steps)
	}
	// One in ten bursts has no fault, and three in ten have two.
	faults := []int{0, 1, 1, 1, 1, 1, 1, 2, 2, 2}[q.r.IntN(10)]
	var last []Step
	for range faults {
		step := q.fault()
		if slices.Contains(q.Without, step.Do) || step.Do == Reboot && q.m.changed[withoutReboot] {
			continue
		}
		if step.Do == Reboot { // it would matter whether a change came before or after it
			last = []Step{step}
			continue
		}
		steps = slices.Insert(steps, first+q.r.IntN(len(steps)+1-first), step)
	}
	for _, step := range last {
		q.m.Apply(step)
		steps = append(steps, step)
	}
	q.m.Settle()
	return append(steps, Step{Settled: true})
}

// operation draws an operation that is possible now, by weight.
func (q *Sequence) operation() (Step, bool) {
	for range 20 {
		o := DrawOperation(q.r)
		step, ok := o.Draw(q.r, q.m)
		step.Do, step.After = o.Name, q.r.IntN(longestPause)
		if ok && !slices.Contains(q.Without, step.Do) && q.m.Apply(step) {
			return step, true
		}
	}
	return Step{}, false
}

// DrawOperation draws an operation by weight. It may not be possible.
func DrawOperation(r *rand.Rand) *Operation {
	sum := 0
	for _, o := range Operations {
		sum += o.Weight
	}
	n, i := r.IntN(sum), 0
	for n >= Operations[i].Weight {
		n -= Operations[i].Weight
		i++
	}
	return &Operations[i]
}

func (q *Sequence) fault() Step {
	sum := 0
	for _, f := range Faults {
		sum += f.Weight
	}
	n, i := q.r.IntN(sum), 0
	for n >= Faults[i].Weight {
		n -= Faults[i].Weight
		i++
	}
	f := Faults[i]
	step := f.Draw(q.r, q.m)
	step.Do, step.After = f.Name, q.r.IntN(longestPause)
	if f.Lasts[1] > 0 {
		const second = 1000
		step.Lasts = (f.Lasts[0]*second + q.r.IntN((f.Lasts[1]-f.Lasts[0])*second)) * q.Stretch
	}
	return step
}

// Bursts splits a sequence into its bursts.
func Bursts(steps []Step) [][]Step {
	var bursts [][]Step
	begin := 0
	for i, s := range steps {
		if s.Settled {
			bursts = append(bursts, steps[begin:i+1])
			begin = i + 1
		}
	}
	if begin < len(steps) {
		bursts = append(bursts, append(slices.Clone(steps[begin:]), Step{Settled: true}))
	}
	return bursts
}

// Recording is a sequence that was run, and can be repeated.
type Recording struct {
	Seed uint64 `json:"seed"`
	// Nodes are the nodes of the cluster. The steps contain their names.
	Nodes []string `json:"nodes"`
	Steps []Step   `json:"steps"`
}

// Save writes the recording to a file.
func (r Recording) Save(file string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("encode the sequence: %w", err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return fmt.Errorf("write the sequence: %w", err)
	}
	return nil
}

// LoadRecording reads a recording from a file.
func LoadRecording(file string) (r Recording, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return r, fmt.Errorf("read a sequence: %w", err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("read the sequence %s: %w", file, err)
	}
	return r, nil
}

// Shrink looks for a shorter sequence that still fails. It leaves out bursts, then single steps of those that are left.
func Shrink(steps []Step, fails func([]Step) bool) []Step {
	bursts := shrink.Sequence(Bursts(steps), func(bursts [][]Step) bool { return fails(slices.Concat(bursts...)) })
	for i, burst := range bursts {
		settled := len(burst) - 1
		less := shrink.Sequence(burst[:settled], func(steps []Step) bool {
			return fails(slices.Concat(slices.Concat(bursts[:i]...), steps, burst[settled:], slices.Concat(bursts[i+1:]...)))
		})
		bursts[i] = slices.Concat(less, burst[settled:])
	}
	return slices.Concat(bursts...)
}
