package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/rehearsal"
	"github.com/lastcall-dev/lastcall/rehearsal/service"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

const rehearseHelp = `Run the published experiment on this machine: a client sends GET /delay/10 through a gateway and a sidecar, and at that moment the deployment is scaled to 0. For each strategy (a way to stop a pod) the table shows what the client got, how long the pod stayed, and whether that is as expected.

App, sidecar and gateway are real processes with real sockets on loopback, and get real signals by Kubernetes' rules. All strategies run at the same time: it takes as long as the slowest one, a little more than the grace period.

In Istio's rows lastcall agent --compat istio imitates Istio's agent. With --proxy istio-agent Istio's own agent, pilot-agent, and a real Envoy take its place, and two more rows show the same pods with lastcall wait --envoy as their hooks. The table names the agent that it was. One of them, lastcall-istio-classic, takes the sockets of other cgroups for another container of its pod: on a machine with such services, give the rehearsal a network namespace of its own, unshare -rn sh -c 'ip link set lo up; lastcallctl rehearse --proxy istio-agent'.

The exit code is 1 if a row is not as expected.

` + serviceHelp + `

` + clusterHelp

const rehearseExample = `  lastcallctl rehearse
  lastcallctl rehearse --strategy istio-default,lastcall-native-exit
  lastcallctl rehearse --delay 3s --grace 20s
  lastcallctl rehearse --proxy envoy --gateway envoy
  lastcallctl rehearse --proxy istio-agent
  lastcallctl rehearse --app 'gunicorn -b 127.0.0.1:{port} httpbin:app'
  lastcallctl rehearse --app 'node server.js' --request 'GET /slow' --request '4 GET /fast' -f deployment.yaml
  lastcallctl rehearse --cluster --deployment shop/web --url https://shop.example.com --request 'GET /'`

// usage makes an error about an option a usage error.
func usage(err error) error {
	var option strategy.OptionError
	if errors.As(err, &option) {
		return cli.UsageError{Err: err}
	}
	return err
}

// Kubernetes is what a program that knows Kubernetes adds to Rehearse.
type Kubernetes struct {
	Read    ReadManifest
	Cluster Cluster
}

// Rehearse is the command that runs the experiment, or rehearses one's own service.
func Rehearse(kubernetes ...Kubernetes) *cobra.Command {
	o := rehearsal.Options{}
	own := serviceFlags{}
	var cluster clusterFlags
	if len(kubernetes) > 0 {
		own.read, cluster.Cluster = kubernetes[0].Read, kubernetes[0].Cluster
	}
	var propagation string
	var output cli.Format
	var picture string
	cmd := &cobra.Command{
		Use:     "rehearse",
		Short:   rehearseShort,
		Long:    rehearseHelp,
		Example: rehearseExample,
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(cluster.check(cmd.Flags()), own.check(cmd.Flags(), cluster.isSet)); err != nil {
				return err
			}
			if cluster.isSet {
				return cluster.run(cmd, output, &own.loadFlags)
			}
			span, err := parsePropagation(propagation, own.isSet())
			if err != nil {
				return err
			}
			if own.isSet() {
				grace := time.Duration(0)
				if cmd.Flags().Changed("grace") {
					if grace = o.Grace; grace <= 0 { // 0 stands for the manifest's
						return cli.UsageError{Err: fmt.Errorf("--grace %w", strategy.CheckGrace(grace))}
					}
				}
				common := service.Options{Command: o.App, Propagation: span, Strategies: o.Strategies, KeepLogs: o.KeepLogs, Lastcall: o.Lastcall}
				return own.run(cmd, output, common, grace)
			}
			o.Propagation = span.To
			return measure(cmd, output, func(ctx context.Context, self string) (*rehearsal.Result, error) {
				o.Self, o.Progress = self, os.Stderr
				return rehearsal.Run(ctx, o)
			}, func(r *rehearsal.Result) error { return draw(r, picture) })
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&o.Strategies, "strategy", nil, "`names` of the strategies; may be repeated (default all)")
	flags.DurationVar(&o.Delay, "delay", rehearsal.DefaultDelay, "how long the request takes")
	flags.DurationVar(&o.Grace, "grace", rehearsal.DefaultGrace, "the pods' terminationGracePeriodSeconds, whole seconds; for your own service the manifest's, unless this is set")
	flags.StringVar(&propagation, "propagation", "", "endpoint propagation `delay`: from the scale-down until clients know (default 1s; for your own service 0s..4s, of the fastest and of the slowest client)")
	flags.StringVar(&o.App, "app", "", "`command` of your service, or of an app with httpbin's paths in place of the built-in one; {port}, or the variable PORT, is its port")
	flags.StringVar(&o.Gateway, "gateway", "", "`command` in place of the built-in gateway; {port}, {endpoint} (host:port) and {endpoints} (a file) stand for their values; or envoy, for a real Envoy")
	flags.StringVar(&o.Proxy, "proxy", strategy.ProxyPipe, "data plane of the sidecars: pipe (embedded); envoy, for a real Envoy; or istio-agent, for a real Envoy with Istio's own pilot-agent in Istio's rows")
	flags.StringVar(&o.EnvoyPath, "envoy-path", "", "`path` of Envoy (default LASTCALL_PEER_ENVOY, or else envoy in PATH)")
	flags.StringVar(&o.PilotAgent, "pilot-agent-path", "", "`path` of Istio's pilot-agent (default LASTCALL_PEER_PILOT_AGENT, or else pilot-agent in PATH)")
	flags.StringVar(&o.Client, "client", "go", "HTTP client: go or curl")
	flags.StringVar(&o.KeepLogs, "keep-logs", "", "empty `folder` for the logs of all processes")
	flags.StringVar(&o.Lastcall, "lastcall", "", "`path` of lastcall (default in this program's folder, or else built)")
	flags.StringVar(&picture, "picture", "", "`file` for a picture of the result, SVG")
	cli.OutputFlag(flags, &output, "text, for people, or json")
	cli.Group(flags, "Your own service", own.register)
	if cluster.Register != nil {
		cli.Group(flags, "A service in your cluster", cluster.register)
	}
	cmd.AddCommand(rolloutCommand())
	return cmd
}

// parsePropagation parses --propagation; the experiment has one gateway, and so one delay.
func parsePropagation(text string, isService bool) (service.Span, error) {
	switch {
	case text == "" && isService:
		return service.DefaultPropagation, nil
	case text == "":
		return service.Span{To: rehearsal.DefaultPropagation}, nil
	}
	span, err := service.ParseSpan(text)
	if err == nil && span.From > 0 && !isService {
		err = fmt.Errorf("propagation delay is %q: the experiment has one gateway: must be one duration", text)
	}
	if err != nil {
		return span, cli.UsageError{Err: fmt.Errorf("--propagation: %w", err)}
	}
	return span, nil
}

// draw writes the picture of a result, if a file is named.
func draw(result *rehearsal.Result, file string) error {
	if file == "" {
		return nil
	}
	svg, err := result.Picture().SVG()
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, svg, 0o644); err != nil {
		return fmt.Errorf("write the picture: %w", err)
	}
	return nil
}
