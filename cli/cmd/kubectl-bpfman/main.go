// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Command kubectl-bpfman is the kubectl plugin `kubectl bpfman`.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/bpfman/bpfman-operator/cli/cluster"
	"github.com/bpfman/bpfman-operator/cli/terminal"
)

// exitFound is the exit code if --strict prevents a conversion, or if an object isn't valid.
const exitFound = 2

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The errors that client-go only logs aren't meant for users.
	utilruntime.ErrorHandlers = nil //nolint:reassign // the library provides no other way
	flags := genericclioptions.NewConfigFlags(true)
	connect := cluster.With(flags)
	command := root(genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}, connect)
	flags.AddFlags(command.PersistentFlags())
	_ = command.RegisterFlagCompletionFunc("namespace", completeNamespace(connect)) // fails only for unknown flags
	err := command.ExecuteContext(ctx)
	stop()
	switch {
	case err == nil:
	case errors.Is(err, errLoss), errors.Is(err, errInvalid):
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(exitFound)
	default:
		fmt.Fprintln(os.Stderr, "error:", terminal.Text(err.Error()))
		os.Exit(1)
	}
}

// root returns the command with all its subcommands. Each subcommand is in the file with
// its name.
func root(streams genericiooptions.IOStreams, connect cluster.Connect) *cobra.Command {
	command := &cobra.Command{
		Use:           "kubectl-bpfman",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl bpfman"},
		Short:         "Work with bpfman's eBPF programs",
		SilenceErrors: true,
		SilenceUsage:  true,
		// Shells call kubectl_complete-bpfman through kubectl.
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	command.SetIn(streams.In)
	command.SetOut(streams.Out)
	command.SetErr(streams.ErrOut)
	command.AddCommand(
		chainCommand(streams, connect),
		convertCommand(),
		dumpCommand(streams, connect),
		imageCommand(connect),
		mapsCommand(streams, connect),
		podsCommand(streams, connect),
		programsCommand(streams, connect),
		rolloutCommand(streams, connect),
		tailCommand(streams, connect),
		topCommand(streams, connect),
		traceCommand(streams, connect),
		uiCommand(streams, connect),
		validateCommand(streams, connect),
		versionCommand(streams, connect),
		whyCommand(streams, connect),
	)
	explain(command)
	return command
}

// explain has a command and its subcommands name their usage if the number of arguments is wrong.
func explain(command *cobra.Command) {
	if check := command.Args; check != nil {
		command.Args = func(c *cobra.Command, args []string) error {
			if check(c, args) != nil {
				return fmt.Errorf("%d arguments are too many or too few: the usage is %s; for examples, add --help", len(args), c.UseLine())
			}
			return nil
		}
	}
	for _, c := range command.Commands() {
		explain(c)
	}
}
