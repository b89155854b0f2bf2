package main

import (
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/kube/check"
	"github.com/lastcall-dev/lastcall/rehearsal/console"
)

const checkHelp = `Look a cluster over: nodes with their kernels and versions, the webhook, and the injected pods with
their versions. The command changes nothing. It tries the webhook with a pod that is created as a server-side dry run.

With --pre it checks, before an installation, whether the nodes suffice.

What you may not read is a warning and not an error.

Exit code: 0 without errors (there may be warnings), 1 with errors, 2 for wrong flags.`

func checkCommand() *cobra.Command {
	var cluster clusterFlags
	var output cli.Format
	o := check.Options{Timeout: lookTime}
	cmd := &cobra.Command{
		Use:     "check",
		Short:   "Check a cluster: nodes, webhook, injected pods",
		Long:    checkHelp,
		Example: "  lastcallctl check --pre\n  lastcallctl check\n  lastcallctl check -n shop -o json",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			clients, err := cluster.connect()
			if err != nil {
				return err
			}
			ctx, stop := cli.SignalContext(cmd.Context())
			defer stop()
			o.Pods = cluster.namespace
			if released := cli.Version(version); !strings.HasPrefix(released, "(") { // (devel) has no images
				o.Version = released
			}
			result := check.Run(ctx, clients, o)
			if err := ctx.Err(); err != nil {
				return err
			}
			if output == cli.JSON {
				err = result.WriteJSON(cmd.OutOrStdout())
			} else {
				err = result.WriteText(cmd.OutOrStdout(), console.StyleFor(os.Stdout))
			}
			if err == nil && result.Status() == check.Failed {
				err = cli.ErrReported
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.Pre, "pre", false, "check before an installation: the nodes")
	cluster.register(flags, "look at the pods of this `namespace` only (default all)")
	flags.StringVar(&o.Namespace, "system-namespace", installed.namespace, "`namespace` of lastcall's controller")
	flags.StringVar(&o.Name, "name", installed.name, "`name` of the controller's Deployment")
	cli.OutputFlag(flags, &output, "output format")
	return cmd
}

// lookTime is the time limit of each look-up.
const lookTime = 10 * time.Second

// installed is where the chart puts lastcall's controller.
var installed = struct{ namespace, name string }{"lastcall-system", "lastcall-webhook"}
