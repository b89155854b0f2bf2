package command

import (
	"context"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/rehearsal"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

const rehearseHelp = `Run the published experiment on this machine: a client sends GET /delay/10 through a gateway and a
sidecar, and at that moment the deployment is scaled to 0. For each strategy (a way to stop a pod) the table shows what
the client got, how long the pod stayed, and whether that is as expected.

App and sidecar are real processes with real sockets on loopback, and get real signals by Kubernetes' rules; the gateway
is a part of this program. All strategies run at the same time: it takes as long as the slowest one, a little more than
the grace period.

In Istio's rows lastcall agent --compat istio imitates Istio's agent. With --proxy istio-agent Istio's own agent,
pilot-agent, and a real Envoy take its place, and two more rows show the same pods with lastcall wait --envoy as their
hooks. The table names the agent that it was. One of them, lastcall-istio-classic, takes the sockets of other cgroups
for another container of its pod: on a machine with such services, give the rehearsal a network namespace of its own,
unshare -rn sh -c 'ip link set lo up; lastcallctl rehearse --proxy istio-agent'.

A real Envoy is the program that LASTCALL_PEER_ENVOY names, or else envoy in PATH; pilot-agent is found in the same way.

The exit code is 1 if a row is not as expected.`

const rehearseExample = `  lastcallctl rehearse
  lastcallctl rehearse --strategy istio-default,lastcall-native-exit
  lastcallctl rehearse --delay 3s --grace 20s
  lastcallctl rehearse --proxy envoy
  lastcallctl rehearse --proxy istio-agent`

// Rehearse is the command that runs the experiment. More are those of other rehearsals.
func Rehearse(more ...*cobra.Command) *cobra.Command {
	o := rehearsal.Options{}
	var local localFlags
	cmd := &cobra.Command{
		Use:     "rehearse",
		Short:   rehearseShort,
		Long:    rehearseHelp,
		Example: rehearseExample,
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Strategies, o.KeepLogs, o.Lastcall = local.strategies, local.keepLogs, local.lastcall
			return Measure(cmd, local.output, func(ctx context.Context, self string) (*rehearsal.Result, error) {
				o.Self, o.Progress = self, os.Stderr
				return rehearsal.Run(ctx, o)
			})
		},
	}
	flags := cmd.Flags()
	flags.DurationVar(&o.Delay, "delay", rehearsal.DefaultDelay, "how long the request takes")
	flags.DurationVar(&o.Grace, "grace", rehearsal.DefaultGrace, "the pods' terminationGracePeriodSeconds, whole seconds")
	flags.DurationVar(&o.Propagation, "propagation", rehearsal.DefaultPropagation,
		"endpoint propagation delay: from the scale-down until the gateway knows")
	flags.StringVar(&o.Proxy, "proxy", strategy.ProxyPipe,
		"data plane of the sidecars: pipe (embedded); envoy, for a real Envoy; "+
			"or istio-agent, for a real Envoy with Istio's own pilot-agent in Istio's rows")
	local.register(flags)
	cmd.AddCommand(rolloutCommand())
	cmd.AddCommand(more...)
	return cmd
}

// localFlags are those of each rehearsal on this machine.
type localFlags struct {
	strategies         []string
	keepLogs, lastcall string
	output             cli.Format
}

func (f *localFlags) register(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.strategies, "strategy", nil,
		"`names` of the strategies; may be repeated (default all; of a service as-is and lastcall)")
	flags.StringVar(&f.keepLogs, "keep-logs", "", "empty `folder` for the logs of all processes")
	flags.StringVar(&f.lastcall, "lastcall", "", "`path` of lastcall (default in this program's folder, or else built)")
	cli.OutputFlag(flags, &f.output, "text, for people, or json")
}
