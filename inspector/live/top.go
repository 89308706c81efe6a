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

	"github.com/bpfman/bpfman-operator/apis/live"
	"github.com/bpfman/bpfman-operator/inspector/kernel"
)

// Top writes, once for each interval, which programs ran in it and for how long. It has
// the kernel count meanwhile. The kernel counts for as long as somebody asks it to: as
// the asking is an open file, it ends with this process, however that ends, and doesn't
// end what others ask for.
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

// meter remembers what the kernel had counted when it was read.
type meter struct{ last map[uint32]counted }

type counted struct {
	runs uint64
	time time.Duration
}

// read returns what ran since it was called last. No program stays open.
func (m *meter) read() ([]live.ProgramUsage, error) {
	ids, err := kernel.List()
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what was tried
	}
	now := map[uint32]counted{}
	var used []live.ProgramUsage
	for _, id := range ids.Programs {
		runs, time, err := kernel.Runs(id)
		if errors.Is(err, os.ErrNotExist) {
			continue // it has gone meanwhile
		}
		if err != nil {
			return nil, err //nolint:wrapcheck // it says what was tried
		}
		now[id] = counted{runs, time}
		before := m.last[id]
		if runs < before.runs {
			before = counted{} // another program has this id now
		}
		if runs > before.runs {
			used = append(used, live.ProgramUsage{Program: describe(id), Runs: runs - before.runs, RunTime: time - before.time})
		}
	}
	m.last = now
	return used, nil
}

// describe says what program it is, as far as it can still be read.
func describe(id uint32) live.Program {
	read, _ := kernel.ReadProgram(id) // empty where it has gone meanwhile
	return live.Program{ID: id, Name: read.Name, Type: read.Type}
}
