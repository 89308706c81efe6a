// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
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
	var id uint
	var pin, hostProc string
	err := arguments(messages.CommandDump, given, func(flags *flag.FlagSet) {
		flags.UintVar(&id, "map", 0, "Kernel ID of the map.")
		flags.StringVar(&pin, "pin", "", "Path where the map is pinned on the node, instead of --map.")
		flags.StringVar(&o.Section, "section", "", "Section of global variables, such as .bss, of one of --programs, instead of --map.")
		addPrograms(flags, &o.Programs, "Kernel IDs of programs, separated by commas, for --section.")
		flags.StringVar(&hostProc, "host-proc", "/host/proc", "Path of the host's /proc, for --pin.")
		flags.IntVar(&o.Limit, "limit", 0, "Maximum number of entries; 0 for all.")
		flags.DurationVar(&o.Every, "every", 0, "Interval at which the dump is repeated while something writes to standard input.")
	})
	if err != nil {
		return err
	}
	specified := 0
	for _, is := range []bool{id != 0, pin != "", o.Section != ""} {
		if is {
			specified++
		}
	}
	if specified != 1 || id > 1<<32-1 {
		return errors.New("specify one of --map, --pin, and --section")
	}
	o.Map = uint32(id)
	if pin != "" {
		o.Path = filepath.Join(hostProc, "1/root", pin)
	}
	return live.Dump(ctx, o, in, out)
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
