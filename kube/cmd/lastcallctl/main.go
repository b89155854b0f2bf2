// Lastcallctl is the command line for people: it checks a cluster, adds lastcall to manifests, finds timers in them
// that cannot work together, and rehearses how pods end.
package main

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/kube/manifest"
	"github.com/lastcall-dev/lastcall/kube/rehearse"
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
	cli.AddGroup(root, "This machine:", command.Rehearse(rehearse.Manifest), command.HTTPBin())
	return root
}

// files are manifests: a command takes them as arguments and with -f.
type files []string

func (f *files) register(flags *pflag.FlagSet) {
	flags.StringArrayVarP((*[]string)(f), "filename", "f", nil,
		"manifest `file`, folder or pattern, or - for standard input; the same as FILE; may be repeated")
}

// and are all that were given.
func (f files) and(args []string) ([]string, error) {
	all := slices.Concat(f, args)
	if len(all) == 0 {
		return nil, cli.UsageError{Err: errors.New("missing FILE: a manifest, a folder, or - for standard input")}
	}
	return all, nil
}

// read reads all that were given.
func (f files) read(cmd *cobra.Command, args []string) ([]*manifest.File, error) {
	given, err := f.and(args)
	if err != nil {
		return nil, err
	}
	read, err := manifest.Read(given, cmd.InOrStdin())
	if err != nil {
		return nil, cli.UsageError{Err: fmt.Errorf("FILE must be a file, a folder, a pattern or -: %w", err)}
	}
	return read, nil
}
