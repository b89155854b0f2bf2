// Lastcallctl is the command line for people: it checks a cluster, adds lastcall to manifests, finds timers in them
// that cannot work together, and rehearses how pods end.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/rehearsal/command"
)

// version is set by the build (-ldflags "-X main.version=…").
var version = ""

func main() { os.Exit(cli.Main(root(), cli.Version(version))) }

func root() *cobra.Command {
	root := &cobra.Command{
		Use:   "lastcallctl",
		Short: "Check clusters and manifests; rehearse how pods stop",
		Args:  cli.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cli.AddGroup(root, "Your cluster:", checkCommand(), observeCommand())
	cli.AddGroup(root, "Your manifests:", injectCommand(), lintCommand(), planCommand())
	cli.AddGroup(root, "This machine:", rehearseCommand(), command.HTTPBin())
	return root
}
