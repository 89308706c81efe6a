// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package live

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/bpfman/bpfman-operator/inspector/mapcontent"
	"github.com/bpfman/bpfman-operator/internal/live"
)

// DumpOptions are the options of Dump.
type DumpOptions struct {
	// Map is the kernel's id of the map. Instead, a map can be specified by the path where it is pinned, or as a
	// section of global variables that one of some programs uses.
	Map      uint32
	Path     string
	Section  string
	Programs []uint32
	// Limit is the maximum number of entries. 0 means no limit.
	Limit int
	// Every is the interval at which to repeat the dump. With 0, there is one dump.
	Every time.Duration
}

// Dump writes the content of a map. It closes the map between dumps, so that the kernel
// can free the map when its last holder closes it. Then Dump returns. A single dump
// doesn't read from in.
func Dump(ctx context.Context, o DumpOptions, in io.Reader, out io.Writer) error {
	if o.Every > 0 {
		var cancel context.CancelFunc
		ctx, cancel = whileRead(ctx, in, silence)
		defer cancel()
	}
	answers := linesTo(out)
	once := func() error {
		m, err := o.open()
		if err != nil {
			return err
		}
		err = m.Dump(ctx, o.Limit, func(line live.DumpLine) error { return answers.write(line) })
		return errors.Join(err, m.Close(), answers.flush())
	}
	if err := once(); err != nil || o.Every <= 0 {
		return err
	}
	ticker := time.NewTicker(o.Every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if err := once(); err != nil {
				return err
			}
		}
	}
}

func (o DumpOptions) open() (*mapcontent.Map, error) {
	switch {
	case o.Path != "":
		return mapcontent.OpenPinned(o.Path)
	case o.Section != "":
		return mapcontent.OpenSection(o.Programs, o.Section)
	default:
		return mapcontent.Open(o.Map)
	}
}
