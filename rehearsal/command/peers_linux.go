package command

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/internal/cli"
	"github.com/lastcall-dev/lastcall/rehearsal/console"
	"github.com/lastcall-dev/lastcall/rehearsal/peers"
)

const peersHelp = `Measure how a real Envoy is ended under each peer's own rules: Istio's agent (default,
EXIT_ON_ZERO_ACTIVE_CONNECTIONS, native sidecar), the shutdown managers of Envoy Gateway and
Contour, consul-dataplane, Kuma, and lastcall.

A client asks for something slow; the pod gets its SIGTERM at that moment. The tables show
what the client got, when the pod was gone, how long of that it was idle, and how many
requests were lost: with the request and with ten that come late, in an idle pod, and beside
another client's idle keep-alive connection. The peers are models of a page each, after their
sources and with their defaults; Envoy, app and signals are real, and so is lastcall.

The exit code is 1 when a row does not come out as the peer's rules say.`

const peersExample = `  lastcallctl rehearse peers
  lastcallctl rehearse peers --peer contour,lastcall-manager --limit 6m -o json`

func peersCommand() *cobra.Command {
	o := peers.Options{}
	var output cli.Format
	cmd := &cobra.Command{
		Use:     "peers",
		Short:   "Measure how a real Envoy is ended under each peer's own rules",
		Long:    peersHelp,
		Example: peersExample,
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := cli.SignalContext(cmd.Context())
			defer stop()
			var err error
			if o.Self, err = os.Executable(); err != nil {
				return fmt.Errorf("find this program: %w", err)
			}
			o.Progress = os.Stderr
			result, err := peers.Run(ctx, o)
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
	flags.StringSliceVar(&o.Peers, "peer", nil, "only these `names`; may be repeated (default all)")
	flags.DurationVar(&o.Delay, "delay", peers.DefaultDelay, "how long the request takes; up to 5 s more are added at random, so that polls find no pattern")
	flags.DurationVar(&o.Limit, "limit", peers.DefaultLimit, "how long is waited for a pod's end")
	flags.StringVar(&o.EnvoyPath, "envoy-path", "", "`path` of Envoy (default LASTCALL_PEER_ENVOY, or else envoy in PATH)")
	flags.StringVar(&o.KeepLogs, "keep-logs", "", "empty `folder` that gets what everything wrote")
	flags.StringVar(&o.Lastcall, "lastcall", "", "`path` of lastcall (default beside this program, or else built)")
	cli.OutputFlag(flags, &output, "text, for people, or json")
	return cmd
}
