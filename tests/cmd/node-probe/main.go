// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

// Command node-probe returns information about its node to tests, in JSON, and changes the
// node as they request: see usage. It runs in a privileged pod in the node's process and
// network namespaces.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/bpfman/bpfman-operator/internal/bpfman"
	"github.com/bpfman/bpfman-operator/tests/node"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

const usage = `usage: node-probe command

  wait                    do nothing until stopped
  programs                list the daemon's programs
  survey                  the same, and what the kernel says of them; pins, mounts, processes
  try PREFIX              try each type of program on the daemon, images below PREFIX
  by-hand PROGRAM         load and attach a program, given in JSON, without the agent
  count ID MAP            what a program has counted in a map
  leftovers PROGRAMS MAPS list what is left of programs and maps, ids with commas
  remains KUBELET-ROOT    list what bpfman has on the node: processes, files, pins
  clean KUBELET-ROOT      remove what it leaves there when it is uninstalled
  unload ID               unload a program from the daemon, behind the agent's back
  mount-table             list all mounts, without what changes with each container
  mounts                  list the mounts of eBPF file systems and CSI volumes
  processes EXECUTABLE    list the processes that run it
  kill EXECUTABLE         kill them
  keep-down EXECUTABLE D  kill them, and those that take their place, for a duration
  stop EXECUTABLE         stop them (SIGSTOP)
  continue EXECUTABLE     let them go on (SIGCONT)
  pulse EXECUTABLE D      stop them and let them go on, in turn, for a duration
  files POD-UID DIR       list a directory as a pod sees it, with modes and groups
  signal N                call kill(2) N times, harmlessly
  time N BYTECODE FUNCTION
                          time the daemon's calls for N programs of a bytecode image, or of
                          a file with an absolute path
  time-at SOCKET N BYTECODE FUNCTION
                          the same with the daemon at a socket
  lose-state              stop the agent and the daemon, and remove what a reboot removes
  list EXECUTABLE DIR     the files below a directory as the process that runs it sees it,
                          in the order of their last change
  memory EXECUTABLE...    the resident memory of their processes, in bytes
  knock ADDRESS           send a few packets to an address
  outage ADDRESS          connect to an address again and again, until end-outage is called;
                          the longest time without a connection, in nanoseconds
  end-outage ADDRESS      end it
  frame INTERFACE         send a frame at an interface
  stream INTERFACE EVERY PROGRAM=MAP...
                          send frames at its peer until end-stream is called; what became
                          of them, and what programs counted
  handover INTERFACE EVERY MAP
                          send frames at its peer until end-stream is called; how many of
                          them were counted by no program with that map, and by several
  end-stream INTERFACE    end either
  hold NAME tcx|xdp|tracepoint WHERE N
                          load N programs and attach them, as software does that knows
                          nothing of bpfman, until end-hold is called
  end-hold NAME           end it
  proxy ADDRESS TARGET INSTEAD
                          run an HTTP proxy that connects to INSTEAD in place of TARGET,
                          until end-proxy is called; how often what was asked for
  end-proxy ADDRESS       end it
  started EXECUTABLE      arguments and environment of the processes that run it
  read EXECUTABLE PATH    a file as the process that runs it sees it
  remove EXECUTABLE PATH  remove a file as the process that runs it sees it
  statistics              list the processes that have the kernel count programs' runs
  fetch URL [TOKEN]       get a page
  add-interface NAME      make a pair of network interfaces
  remove-interface NAME   remove it
  move-interface NAME EXECUTABLE
                          move an interface into the network of the one process that
                          runs it
`

const (
	deadline = 2 * time.Minute
	// longest is the maximum duration of a stream, of holding programs, of a proxy, or of trying what a slow machine supports.
	longest = 15 * time.Minute
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	result, err := run(ctx, os.Args[1:])
	if err == nil && result != nil {
		err = json.NewEncoder(os.Stdout).Encode(result)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "node-probe:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (any, error) {
	if len(args) > 0 && args[0] == "wait" {
		<-ctx.Done()
		return nil, nil
	}
	limit := deadline
	if len(args) > 0 && slices.Contains([]string{"stream", "handover", "hold", "proxy", "try", "outage"}, args[0]) {
		limit = longest
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	given := append(slices.Clone(args), "", "", "")
	return answer(ctx, given[0], given[1], given[2], args)
}

// answer runs one command. argument and second are its first arguments, or "". args are
// all arguments.
func answer(ctx context.Context, command, argument, second string, args []string) (any, error) {
	switch command {
	case "programs":
		return onDaemon(ctx, node.Programs)
	case "try":
		return onDaemon(ctx, func(ctx context.Context, c gobpfman.BpfmanClient) ([]node.Trial, error) {
			return node.Try(ctx, c, argument)
		})
	case "survey":
		return onDaemon(ctx, node.Look)
	case "by-hand":
		var program node.ByHand
		if err := json.Unmarshal([]byte(argument), &program); err != nil {
			return nil, fmt.Errorf("program: %w", err)
		}
		return onDaemon(ctx, program.Attach)
	case "count":
		return node.Count(argument, second)
	case "statistics":
		return node.Counting()
	case "started":
		return node.Started(argument)
	case "read":
		return node.ReadAs(argument, second)
	case "remove":
		return nil, node.RemoveAs(argument, second)
	case "fetch":
		return node.Fetch(ctx, argument, second)
	case "unload":
		return onDaemon(ctx, func(ctx context.Context, c gobpfman.BpfmanClient) (any, error) { return nil, unload(ctx, c, argument) })
	case "leftovers":
		return leftovers(argument, second)
	case "remains":
		return node.Remains(argument)
	case "clean":
		return nil, node.Clean(argument)
	case "mount-table":
		return node.MountTable()
	case "mounts":
		return node.Mounts()
	case "processes":
		return node.Processes(argument)
	case "kill", "stop", "continue", "keep-down", "pulse":
		return nil, toProcesses(ctx, command, argument, second)
	case "files":
		return node.PodFiles(argument, second)
	case "signal":
		return nil, signalSelf(argument)
	case "list":
		return node.Below(argument, second)
	case "lose-state":
		return nil, node.LoseState()
	default:
		return measure(ctx, command, argument, args)
	}
}

// measure runs one of the commands for benchmarks.
func measure(ctx context.Context, command, argument string, args []string) (any, error) {
	switch command {
	case "time":
		return onDaemon(ctx, func(ctx context.Context, c gobpfman.BpfmanClient) (node.Times, error) {
			return timeCalls(ctx, c, args[1:])
		})
	case "time-at":
		return timeAt(ctx, argument, args[min(2, len(args)):])
	case "memory":
		return node.Memory(args[1:]...)
	default:
		return onNetwork(ctx, command, argument, args)
	}
}

// onNetwork runs one of the commands for interfaces and packets.
func onNetwork(ctx context.Context, command, argument string, args []string) (any, error) {
	switch command {
	case "frame":
		return nil, node.SendFrame(argument)
	case "stream":
		return stream(ctx, args[1:])
	case "handover":
		if len(args) != 4 {
			return nil, errors.New("handover takes an interface, an interval and a map")
		}
		interval, err := time.ParseDuration(args[2])
		if err != nil {
			return nil, fmt.Errorf("interval: %w", err)
		}
		return node.SendHandover(ctx, args[1], interval, args[3])
	case "end-stream":
		return nil, node.EndStream(ctx, argument)
	case "hold":
		return nil, hold(ctx, args[1:])
	case "end-hold":
		return nil, node.EndHold(ctx, argument)
	case "proxy":
		if len(args) != 4 {
			return nil, errors.New("proxy takes an address and two targets")
		}
		return node.Proxy(ctx, args[1], args[2], args[3])
	case "end-proxy":
		return nil, node.EndProxy(ctx, argument)
	case "knock":
		return nil, node.Knock(ctx, argument)
	case "outage":
		return node.Outage(ctx, argument)
	case "end-outage":
		return nil, node.EndOutage(ctx, argument)
	case "add-interface":
		return nil, node.AddInterface(argument)
	case "remove-interface":
		return nil, node.RemoveInterface(argument)
	case "move-interface":
		if len(args) < 3 {
			return nil, errors.New("move-interface takes an interface and an executable")
		}
		return nil, node.MoveInterface(argument, args[2])
	default:
		fmt.Fprint(os.Stderr, usage)
		return nil, fmt.Errorf("no such command: %q", command)
	}
}

// onDaemon calls f with a client of the node's daemon.
func onDaemon[T any](ctx context.Context, f func(context.Context, gobpfman.BpfmanClient) (T, error)) (result T, err error) {
	conn, err := node.DialDaemon()
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	return f(ctx, gobpfman.NewBpfmanClient(conn))
}

// timeAt waits until the daemon at a socket serves, and times its calls.
func timeAt(ctx context.Context, socket string, args []string) (times node.Times, err error) {
	conn, err := bpfman.Dial(socket)
	if err != nil {
		return times, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	daemon := gobpfman.NewBpfmanClient(conn)
	if _, err := daemon.List(ctx, &gobpfman.ListRequest{}, grpc.WaitForReady(true)); err != nil {
		return times, fmt.Errorf("wait for the daemon at %s: %w", socket, err)
	}
	return timeCalls(ctx, daemon, args)
}

func unload(ctx context.Context, client gobpfman.BpfmanClient, argument string) error {
	id, err := strconv.ParseUint(argument, 10, 32)
	if err != nil {
		return fmt.Errorf("program id: %w", err)
	}
	if _, err := client.Unload(ctx, &gobpfman.UnloadRequest{Id: uint32(id)}); err != nil {
		return fmt.Errorf("unload program %d: %w", id, err)
	}
	return nil
}

func timeCalls(ctx context.Context, client gobpfman.BpfmanClient, args []string) (node.Times, error) {
	if len(args) != 3 {
		return node.Times{}, fmt.Errorf("time takes a number, bytecode and a function, not %d arguments", len(args))
	}
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return node.Times{}, fmt.Errorf("number of programs: %w", err)
	}
	return node.TimeCalls(ctx, client, n, args[1], args[2])
}

func stream(ctx context.Context, args []string) (node.Stream, error) {
	if len(args) < 2 {
		return node.Stream{}, errors.New("stream takes an interface, an interval and programs")
	}
	interval, err := time.ParseDuration(args[1])
	if err != nil {
		return node.Stream{}, fmt.Errorf("interval: %w", err)
	}
	programs := map[string]string{}
	for _, program := range args[2:] {
		id, mapName, _ := strings.Cut(program, "=")
		programs[id] = mapName
	}
	return node.SendStream(ctx, args[0], interval, programs)
}

func hold(ctx context.Context, args []string) error {
	if len(args) != 4 {
		return fmt.Errorf("hold takes a name, what to attach, where, and a number, not %d arguments", len(args))
	}
	many, err := strconv.Atoi(args[3])
	if err != nil {
		return fmt.Errorf("number of programs: %w", err)
	}
	return node.Hold(ctx, args[0], args[1], args[2], many)
}

// The phases of the processes in `pulse`. They are stopped most of the time.
const (
	pulseStopped = 400 * time.Millisecond
	pulseRunning = 100 * time.Millisecond
)

// toProcesses runs one of the commands that affect the processes of an executable.
func toProcesses(ctx context.Context, command, executable, duration string) error {
	switch command {
	case "kill":
		return node.Kill(executable)
	case "stop":
		return node.Signal(executable, unix.SIGSTOP)
	case "continue":
		return node.Signal(executable, unix.SIGCONT)
	}
	d, err := time.ParseDuration(duration)
	if err != nil {
		return fmt.Errorf("duration: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	if command == "pulse" {
		return node.Pulse(ctx, executable, pulseStopped, pulseRunning)
	}
	return node.KeepDown(ctx, executable)
}

func leftovers(programs, maps string) ([]string, error) {
	programIDs, err := ids(programs)
	if err != nil {
		return nil, err
	}
	mapIDs, err := ids(maps)
	if err != nil {
		return nil, err
	}
	return node.Leftovers(programIDs, mapIDs)
}

// ids parses numbers that are separated by commas.
func ids(list string) ([]uint32, error) {
	var out []uint32
	for text := range strings.SplitSeq(list, ",") {
		if text == "" {
			continue
		}
		id, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("ids %q: %w", list, err)
		}
		out = append(out, uint32(id))
	}
	return out, nil
}

// signalSelf calls kill(2) on this process with signal 0, which has no effect.
func signalSelf(argument string) error {
	times, err := strconv.Atoi(argument)
	if err != nil {
		return fmt.Errorf("number of calls: %w", err)
	}
	for range times {
		if err := unix.Kill(unix.Getpid(), 0); err != nil {
			return fmt.Errorf("signal this process: %w", err)
		}
	}
	return nil
}
