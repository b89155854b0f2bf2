package command

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/rehearsal/rollout"
)

const rolloutHelp = `Count the requests that are lost while pods are replaced one after another under load.

Keep-alive clients send fast and slow requests (up to 5 s), half of them through the gateway and half directly to the
pods. Gateway and clients receive changes of the endpoints late. A refused connection is retried with another pod, as any
client may; every other failure counts as lost. All strategies run at the same time.

The exit code is 1 if lastcall loses a request.`

func rolloutCommand() *cobra.Command {
	o := rollout.Options{}
	var output cli.Format
	cmd := &cobra.Command{
		Use:   "rollout",
		Short: "Count lost requests while pods are replaced under load",
		Long:  rolloutHelp,
		Args:  cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return measure(cmd, output, func(ctx context.Context, self string) (*rollout.Result, error) {
				o.Self, o.Progress = self, os.Stderr
				return rollout.Run(ctx, o)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&o.Strategies, "strategy", nil, "`names` of the strategies: lastcall, istio-default, istio-exit-on-zero, prestop-sleep-5, none (default all)")
	flags.IntVar(&o.Requests, "requests", rollout.DefaultRequests, "number of requests, for each strategy")
	flags.IntVar(&o.Rate, "rate", rollout.DefaultRate, "requests per second, for each strategy")
	flags.DurationVar(&o.Propagation, "propagation", rollout.DefaultPropagation, "maximum endpoint propagation delay")
	flags.DurationVar(&o.Grace, "grace", rollout.DefaultGrace, "the pods' terminationGracePeriodSeconds, whole seconds")
	flags.StringVar(&o.KeepLogs, "keep-logs", "", "empty `folder` for the logs of all processes")
	flags.StringVar(&o.Lastcall, "lastcall", "", "`path` of lastcall (default in this program's folder, or else built)")
	cli.OutputFlag(flags, &output, "text, for people, or json")
	return cmd
}
