// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/bpfman/bpfman-operator/inspector/live"
	messages "github.com/bpfman/bpfman-operator/internal/live"
	"github.com/bpfman/bpfman-operator/internal/verifierlog"
)

// arguments parses the arguments of a command, which are only flags.
func arguments(name string, given []string, add func(*flag.FlagSet)) error {
	flags := flag.NewFlagSet(component+" "+name, flag.ContinueOnError)
	add(flags)
	if err := flags.Parse(given); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected arguments: %q", flags.Args())
	}
	return nil
}

func dump(ctx context.Context, given []string, in io.Reader, out io.Writer) error {
	var o live.DumpOptions
	var m mapFlags
	err := arguments(messages.CommandDump, given, func(flags *flag.FlagSet) {
		m.addTo(flags)
		flags.StringVar(&o.Section, "section", "", "Section of global variables, such as .bss, of one of --programs, instead of --map.")
		addPrograms(flags, &o.Programs, "Kernel IDs of programs, separated by commas, for --section.")
		flags.IntVar(&o.Limit, "limit", 0, "Maximum number of entries; 0 for all.")
		flags.DurationVar(&o.Every, "every", 0, "Interval at which the dump is repeated while something writes to standard input.")
	})
	if err != nil {
		return err
	}
	if o.Section == "" {
		o.Map, o.Path, err = m.which()
	} else if m.id != 0 || m.pin != "" {
		err = errors.New("specify --section without --map and --pin")
	}
	if err != nil {
		return err
	}
	return live.Dump(ctx, o, in, out)
}

func tail(ctx context.Context, given []string, in io.Reader, out io.Writer) error {
	var o live.TailOptions
	var m mapFlags
	err := arguments(messages.CommandTail, given, func(flags *flag.FlagSet) {
		m.addTo(flags)
		flags.StringVar(&o.Type, "type", "", "Struct of the events in the types of the programs that use the map. By default, the only struct of an event's length.")
		flags.BoolVar(&o.Unread, "unread", false, "Begin with the first event that no application has read, instead of the next one.")
	})
	if err != nil {
		return err
	}
	if o.Map, o.Path, err = m.which(); err != nil {
		return err
	}
	o.HostProc = m.hostProc
	return live.Tail(ctx, o, in, out)
}

// mapFlags specify a map by its ID or its pin.
type mapFlags struct {
	id            uint
	pin, hostProc string
}

func (m *mapFlags) addTo(flags *flag.FlagSet) {
	flags.UintVar(&m.id, "map", 0, "Kernel ID of the map.")
	flags.StringVar(&m.pin, "pin", "", "Path where the map is pinned on the node, instead of --map.")
	flags.StringVar(&m.hostProc, "host-proc", "/host/proc", "Path of the host's /proc.")
}

// which returns the ID, or the path in the inspector's container.
func (m *mapFlags) which() (id uint32, path string, err error) {
	if (m.id != 0) == (m.pin != "") || m.id > math.MaxUint32 {
		return 0, "", errors.New("specify either --map or --pin")
	}
	if m.pin != "" {
		return 0, filepath.Join(m.hostProc, "1/root", m.pin), nil
	}
	return uint32(m.id), "", nil
}

func top(ctx context.Context, given []string, in io.Reader, out io.Writer) error {
	var interval time.Duration
	err := arguments(messages.CommandTop, given, func(flags *flag.FlagSet) {
		flags.DurationVar(&interval, "interval", 2*time.Second, "Period over which runs are counted.")
	})
	if err != nil {
		return err
	}
	if interval <= 0 {
		return fmt.Errorf("--interval must be greater than 0, not %v", interval)
	}
	return live.Top(ctx, interval, in, out)
}

func trace(ctx context.Context, given []string, in io.Reader, out io.Writer) error {
	var ids []uint32
	err := arguments(messages.CommandTrace, given, func(flags *flag.FlagSet) {
		addPrograms(flags, &ids, "Kernel IDs of programs, separated by commas. By default, all.")
	})
	if err != nil {
		return err
	}
	return live.Trace(ctx, ids, in, out)
}

func log(_ context.Context, given []string, _ io.Reader, out io.Writer) error {
	var owner verifierlog.Owner
	var dir, hostProc string
	err := arguments(messages.CommandLog, given, func(flags *flag.FlagSet) {
		flags.StringVar(&owner.Kind, "kind", "", "Kind of the object.")
		flags.StringVar(&owner.Namespace, "namespace", "", "Namespace of the object.")
		flags.StringVar(&owner.Name, "name", "", "Name of the object.")
		flags.StringVar(&dir, "dir", verifierlog.NodeDir, "Directory of the logs on the node.")
		flags.StringVar(&hostProc, "host-proc", "/host/proc", "Path of the host's /proc.")
	})
	if err != nil {
		return err
	}
	return live.Log(verifierlog.Store{Dir: filepath.Join(hostProc, "1/root", dir)}, owner, out)
}

// addPrograms adds a flag with the ids of programs.
func addPrograms(flags *flag.FlagSet, ids *[]uint32, usage string) {
	flags.Func("programs", usage, func(list string) error {
		for text := range strings.SplitSeq(list, ",") {
			id, err := strconv.ParseUint(text, 10, 32)
			if err != nil {
				return err
			}
			*ids = append(*ids, uint32(id))
		}
		return nil
	})
}
