package command

import (
	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/rehearsal/node"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// EnterContainer is the command by which a rehearsal starts an image's program.
func EnterContainer() *cobra.Command {
	return &cobra.Command{
		Use:    strategy.EnterCommand + " ROOT SCRATCH DIR PROGRAM [ARG…]",
		Hidden: true,
		Args:   cobra.MinimumNArgs(4),
		RunE:   func(_ *cobra.Command, args []string) error { return node.Enter(args[0], args[1], args[2], args[3:]) },
	}
}
