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

const rehearseHelp = `Play the well-known experiment on this machine: a client asks for GET /delay/10
through a gateway and a sidecar, the deployment is scaled to 0 at that moment, and
the table shows what the client got under each way of stopping, how long the pod
stayed, and whether that is what is stated of it.

App, sidecar and gateway are real processes on real sockets of loopback; they get
real signals by Kubernetes' rules. All strategies run side by side, so it takes as long as
its slowest one: a little more than the grace period.

The exit code is 1 when a row does not come out as stated.`

const rehearseExample = `  lastcallctl rehearse
  lastcallctl rehearse --strategy istio-default,lastcall-native-exit
  lastcallctl rehearse --delay 3s --grace 20s
  lastcallctl rehearse --proxy envoy --gateway envoy
  lastcallctl rehearse --app 'gunicorn -b 127.0.0.1:{port} httpbin:app' --client curl`

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
	flags.StringSliceVar(&o.Strategies, "strategy", nil, "only these `names`; may be repeated (default all)")
	flags.DurationVar(&o.Delay, "delay", rehearsal.DefaultDelay, "how long the request takes")
	flags.DurationVar(&o.Grace, "grace", rehearsal.DefaultGrace, "the pods' terminationGracePeriodSeconds, whole seconds")
	flags.DurationVar(&o.Propagation, "propagation", rehearsal.DefaultPropagation, "how late the gateway learns that an endpoint is gone")
	flags.StringVar(&o.App, "app", "", "`command` of an app with httpbin's paths in place of the built-in one; {port} is filled in")
	flags.StringVar(&o.Gateway, "gateway", "", "`command` in place of the built-in gateway; {port}, {endpoint} (host:port) and {endpoints} (a file) are filled in; or envoy, a real one")
	flags.StringVar(&o.Proxy, "proxy", strategy.ProxyPipe, "what the sidecars carry the traffic with: pipe (embedded) or envoy, a real one")
	flags.StringVar(&o.EnvoyPath, "envoy-path", "", "`path` of Envoy (default LASTCALL_PEER_ENVOY, or else envoy in PATH)")
	flags.StringVar(&o.Client, "client", "go", "go or curl")
	flags.StringVar(&o.KeepLogs, "keep-logs", "", "empty `folder` that gets what everything wrote")
	flags.StringVar(&o.Lastcall, "lastcall", "", "`path` of lastcall (default beside this program, or else built)")
	flags.StringVar(&picture, "picture", "", "`file` for a picture of it all, SVG")
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
