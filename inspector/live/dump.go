// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package live

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/bpfman/bpfman-operator/apis/live"
	"github.com/bpfman/bpfman-operator/inspector/mapcontent"
)

// DumpOptions say what is dumped.
type DumpOptions struct {
	// Map is the kernel's id, or 0 where Path is given.
	Map uint32
	// Path is where the map is pinned.
	Path string
	// Limit is the number of entries, 0 for all.
	Limit int
	// Every is how often it is dumped, once if it is 0.
	Every time.Duration
}

// Dump writes what a map holds. The map isn't kept open between dumps, so that it goes
// when its last holder does; that ends the dumps. One dump alone needs no input.
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
			return err //nolint:wrapcheck // it says what was tried
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
	if o.Path != "" {
		return mapcontent.OpenPinned(o.Path) //nolint:wrapcheck // it says what was tried
	}
	return mapcontent.Open(o.Map) //nolint:wrapcheck // it says what was tried
}
