package command

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/internal/cli"
	"github.com/lastcall-dev/lastcall/rehearsal/console"
	"github.com/lastcall-dev/lastcall/rehearsal/rollout"
)

const rolloutHelp = `Count what is lost while pods are replaced one after another under load.

Keep-alive clients ask for fast things and for slow ones (up to 5 s), half of them
through the gateway and half straight at the pods. Both learn late which pods there are. A
refused connection is tried elsewhere, as every client may; all else that goes wrong is
lost. All strategies run side by side.

The exit code is 1 when lastcall loses a request.`

func rolloutCommand() *cobra.Command {
	o := rollout.Options{}
	var output cli.Format
	cmd := &cobra.Command{
		Use:   "rollout",
		Short: "Count what is lost while pods are replaced under load",
		Long:  rolloutHelp,
		Args:  cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := cli.SignalContext(cmd.Context())
			defer stop()
			var err error
			if o.Self, err = os.Executable(); err != nil {
				return fmt.Errorf("find this program: %w", err)
			}
			o.Progress = os.Stderr
			result, err := rollout.Run(ctx, o)
			if err != nil {
				return asUsage(err)
			}
			if output == cli.JSON {
				err = result.WriteJSON(cmd.OutOrStdout())
			} else {
				err = result.WriteTable(cmd.OutOrStdout(), console.StyleFor(os.Stdout))
			}
			if err == nil && !result.OK {
				err = cli.ErrReported
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&o.Strategies, "strategy", nil, "only these `names`: lastcall, istio-default, istio-exit-on-zero, prestop-sleep-5, none (default all)")
	flags.IntVar(&o.Requests, "requests", rollout.DefaultRequests, "how many, of each strategy")
	flags.IntVar(&o.Rate, "rate", rollout.DefaultRate, "how many a second, of each strategy")
	flags.DurationVar(&o.Propagation, "propagation", rollout.DefaultPropagation, "how late a change of the pods is learnt of at most")
	flags.DurationVar(&o.Grace, "grace", rollout.DefaultGrace, "the pods' terminationGracePeriodSeconds, whole seconds")
	flags.StringVar(&o.KeepLogs, "keep-logs", "", "empty `folder` that gets what everything wrote")
	flags.StringVar(&o.Lastcall, "lastcall", "", "`path` of lastcall (default beside this program, or else built)")
	cli.OutputFlag(flags, &output, "text, for people, or json")
	return cmd
}
