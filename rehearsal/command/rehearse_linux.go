package command

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/internal/cli"
	"github.com/lastcall-dev/lastcall/rehearsal"
	"github.com/lastcall-dev/lastcall/rehearsal/console"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

const rehearseHelp = `Run the published experiment on this machine: a client sends GET /delay/10 through a gateway and a sidecar, and at that moment the deployment is scaled to 0. For each strategy (a way to stop a pod) the table shows what the client got, how long the pod stayed, and whether that is as expected.

App, sidecar and gateway are real processes with real sockets on loopback, and get real signals by Kubernetes' rules. All strategies run at the same time: it takes as long as the slowest one, a little more than the grace period.

The exit code is 1 if a row is not as expected.`

const rehearseExample = `  lastcallctl rehearse
  lastcallctl rehearse --strategy istio-default,lastcall-native-exit
  lastcallctl rehearse --delay 3s --grace 20s
  lastcallctl rehearse --proxy envoy --gateway envoy
  lastcallctl rehearse --app 'gunicorn -b 127.0.0.1:{port} httpbin:app'`

// Rehearse is the command that runs the experiment.
func Rehearse() *cobra.Command {
	o := rehearsal.Options{}
	var output cli.Format
	var picture string
	cmd := &cobra.Command{
		Use:     "rehearse",
		Short:   rehearseShort,
		Long:    rehearseHelp,
		Example: rehearseExample,
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := cli.SignalContext(cmd.Context())
			defer stop()
			var err error
			if o.Self, err = os.Executable(); err != nil {
				return fmt.Errorf("find this program: %w", err)
			}
			o.Progress = os.Stderr
			result, err := rehearsal.Run(ctx, o)
			if err != nil {
				return asUsage(err)
			}
			if output == cli.JSON {
				err = result.WriteJSON(cmd.OutOrStdout())
			} else {
				err = result.WriteTable(cmd.OutOrStdout(), console.StyleFor(os.Stdout))
			}
			if err == nil && picture != "" {
				err = draw(result, picture)
			}
			if err == nil && !result.OK {
				err = cli.ErrReported
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&o.Strategies, "strategy", nil, "`names` of the strategies; may be repeated (default all)")
	flags.DurationVar(&o.Delay, "delay", rehearsal.DefaultDelay, "how long the request takes")
	flags.DurationVar(&o.Grace, "grace", rehearsal.DefaultGrace, "the pods' terminationGracePeriodSeconds, whole seconds")
	flags.DurationVar(&o.Propagation, "propagation", rehearsal.DefaultPropagation, "endpoint propagation delay: from the scale-down until the gateway removes the endpoint")
	flags.StringVar(&o.App, "app", "", "`command` of an app with httpbin's paths in place of the built-in one; {port} stands for its port")
	flags.StringVar(&o.Gateway, "gateway", "", "`command` in place of the built-in gateway; {port}, {endpoint} (host:port) and {endpoints} (a file) stand for their values; or envoy, for a real Envoy")
	flags.StringVar(&o.Proxy, "proxy", strategy.ProxyPipe, "data plane of the sidecars: pipe (embedded) or envoy, for a real Envoy")
	flags.StringVar(&o.EnvoyPath, "envoy-path", "", "`path` of Envoy (default LASTCALL_PEER_ENVOY, or else envoy in PATH)")
	flags.StringVar(&o.Client, "client", "go", "HTTP client: go or curl")
	flags.StringVar(&o.KeepLogs, "keep-logs", "", "empty `folder` for the logs of all processes")
	flags.StringVar(&o.Lastcall, "lastcall", "", "`path` of lastcall (default in this program's folder, or else built)")
	flags.StringVar(&picture, "picture", "", "`file` for a picture of the result, SVG")
	cli.OutputFlag(flags, &output, "text, for people, or json")
	cmd.AddCommand(rolloutCommand(), peersCommand())
	return cmd
}

func draw(result *rehearsal.Result, file string) error {
	svg, err := result.Picture().SVG()
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, svg, 0o644); err != nil {
		return fmt.Errorf("write the picture: %w", err)
	}
	return nil
}

// asUsage turns an error about an option's value into one of usage.
func asUsage(err error) error {
	var option strategy.OptionError
	if errors.As(err, &option) {
		return cli.UsageError{Err: err}
	}
	return err
}
