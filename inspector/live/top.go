// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/inspector/kernel"
	"github.com/bpfman/bpfman-operator/internal/live"
)

// Top writes, in each interval, which programs ran and for how long. It enables the
// kernel's statistics in the meantime. An open file descriptor enables them, so they are
// disabled when this process ends for any reason, unless another process has also
// enabled them.
func Top(ctx context.Context, interval time.Duration, in io.Reader, out io.Writer) error {
	ctx, cancel := whileRead(ctx, in, silence)
	defer cancel()
	cpus := runtime.NumCPU()
	counting, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return fmt.Errorf("turn on the kernel's statistics: %w", err)
	}
	defer counting.Close()

	answers := linesTo(out)
	var meter meter
	if _, err := meter.read(); err != nil {
		return err
	}
	last := time.Now()
	if err := errors.Join(answers.write(live.Usage{CPUs: cpus}), answers.flush()); err != nil {
		return err
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		used, err := meter.read()
		if err != nil {
			return err
		}
		now := time.Now()
		if err := errors.Join(answers.write(live.Usage{Elapsed: now.Sub(last), CPUs: cpus, Programs: used}), answers.flush()); err != nil {
			return err
		}
		last = now
	}
}

// meter contains the kernel's counters from the last read.
type meter struct{ last map[uint32]counted }

type counted struct {
	runs uint64
	time time.Duration
}

// read returns what ran since the last call. It doesn't keep programs open.
func (m *meter) read() ([]live.ProgramUsage, error) {
	ids, err := kernel.List()
	if err != nil {
		return nil, err
	}
	now := map[uint32]counted{}
	var used []live.ProgramUsage
	for _, id := range ids.Programs {
		runs, time, err := kernel.Runs(id)
		if errors.Is(err, os.ErrNotExist) {
			continue // it was unloaded in the meantime
		}
		if err != nil {
			return nil, err
		}
		now[id] = counted{runs, time}
		before := m.last[id]
		if runs < before.runs {
			before = counted{} // another program has the id now
		}
		if runs > before.runs {
			used = append(used, live.ProgramUsage{Program: describe(id), Runs: runs - before.runs, RunTime: time - before.time})
		}
	}
	m.last = now
	return used, nil
}

// describe describes a program, as far as it can still be read.
func describe(id uint32) live.Program {
	read, _ := kernel.ReadProgram(id) // empty if it was unloaded in the meantime
	return live.Program{ID: id, Name: read.Name, Type: read.Type}
}
