// Lastcallctl is the command line for people: it rehearses how pods end, adds lastcall to manifests, and finds timers in
// them that cannot work together.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/internal/cli"
	"github.com/lastcall-dev/lastcall/rehearsal/command"
)

// version is set by the build (-ldflags "-X main.version=…").
var version = ""

func main() { os.Exit(cli.Main(root(), cli.Version(version))) }

func root() *cobra.Command {
	root := &cobra.Command{
		Use:   "lastcallctl",
		Short: "Rehearse how pods stop; add lastcall to manifests, and check their timers",
		Args:  cli.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(command.Rehearse(), command.HTTPBin(), command.Gateway(), injectCommand(), lintCommand(), checkCommand(), cli.VersionCommand(cli.Version(version)))
	return root
}
