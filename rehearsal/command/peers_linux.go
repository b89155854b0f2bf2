package command

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/internal/cli"
	"github.com/lastcall-dev/lastcall/rehearsal/peers"
)

const peersHelp = `Measure how other tools end a real Envoy: Istio's agent (default, EXIT_ON_ZERO_ACTIVE_CONNECTIONS, native
sidecar), the shutdown managers of Envoy Gateway and Contour, consul-dataplane, Kuma, and lastcall.

A client sends a slow request, and the pod gets its SIGTERM at that moment. The tables show what the client got, when the
pod was gone, for how long of that it was idle, and how many requests were lost: with the request and ten late ones, in an
idle pod, and with another client's idle keep-alive connection. The peers are models of a page each, written after their
sources, with their defaults; Envoy, app, signals and lastcall are real. With --pilot-agent-path Istio's own agent takes
the place of its model.

The exit code is 1 if a row differs from the peer's rules.`

const peersExample = `  lastcallctl rehearse peers
  lastcallctl rehearse peers --peer contour,lastcall-manager --limit 6m -o json`

func peersCommand() *cobra.Command {
	o := peers.Options{}
	var output cli.Format
	cmd := &cobra.Command{
		Use:     "peers",
		Short:   "Measure how other tools end a real Envoy",
		Long:    peersHelp,
		Example: peersExample,
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return measure(cmd, output, func(ctx context.Context, self string) (*peers.Result, error) {
				o.Self, o.Progress = self, os.Stderr
				return peers.Run(ctx, o)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&o.Peers, "peer", nil, "`names` of the peers; may be repeated (default all)")
	flags.DurationVar(&o.Delay, "delay", peers.DefaultDelay, "how long the request takes; up to 5 s more are added at random, so that polling finds no pattern")
	flags.DurationVar(&o.Limit, "limit", peers.DefaultLimit, "how long to wait for a pod's end")
	flags.StringVar(&o.EnvoyPath, "envoy-path", "", "`path` of Envoy (default LASTCALL_PEER_ENVOY, or else envoy in PATH)")
	flags.StringVar(&o.PilotAgent, "pilot-agent-path", "", "`path` of Istio's pilot-agent, in place of its model (default the model)")
	flags.StringVar(&o.KeepLogs, "keep-logs", "", "empty `folder` for the logs of all processes")
	flags.StringVar(&o.Lastcall, "lastcall", "", "`path` of lastcall (default in this program's folder, or else built)")
	cli.OutputFlag(flags, &output, "text, for people, or json")
	return cmd
}
