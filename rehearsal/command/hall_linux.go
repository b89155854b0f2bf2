package command

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/internal/cli"
	"github.com/lastcall-dev/lastcall/rehearsal/hall"
)

const hallHelp = `Rehearse popular servers, each with a default or a bug that loses requests: as it is, fixed by one line, and with lastcall. Servers that are not installed are not run; lab/peers/stacks/install fetches them. docs/hall.md has the results.

The exit code is 1 if a bug was not found, or if a fixed server lost a request, or lastcall one that it could save.`

func hallCommand() *cobra.Command {
	o := hall.Options{}
	var output cli.Format
	cmd := &cobra.Command{
		Use:     "hall",
		Short:   "Rehearse popular servers: what they lose, and the line that fixes it",
		Long:    hallHelp,
		Example: "  lastcallctl rehearse hall\n  lastcallctl rehearse hall --server node,nginx",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return measure(cmd, output, func(ctx context.Context, self string) (*hall.Result, error) {
				o.Self, o.Progress = self, os.Stderr
				return hall.Run(ctx, o)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&o.Names, "server", nil, "`names` of the servers; may be repeated (default all that are installed)")
	flags.BoolVar(&o.Bare, "bare", false, "without lastcall's column")
	flags.StringVar(&o.Lastcall, "lastcall", "", "`path` of lastcall (default in this program's folder, or else built)")
	flags.StringVar(&o.Stacks, "stacks", os.Getenv("LASTCALL_STACKS"), "`folder` of lab/peers/stacks/install (default $LASTCALL_STACKS)")
	cli.OutputFlag(flags, &output, "text, for people, or json")
	return cmd
}
