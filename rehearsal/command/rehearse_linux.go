// Package command has the commands of a rehearsal. Two programs mount them: lastcallctl, and rehearse, which compiles
// in seconds because it imports nothing from Kubernetes.
package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/internal/printable"
	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/rehearsal"
	"github.com/lastcall-dev/lastcall/rehearsal/console"
	"github.com/lastcall-dev/lastcall/rehearsal/load"
	"github.com/lastcall-dev/lastcall/rehearsal/service"
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

// Rehearse is the command that runs the experiment. read is nil for a program that reads no manifests.
func Rehearse(read ReadManifest) *cobra.Command {
	var (
		o      rehearsal.Options
		output cli.Format
	)
	cmd := &cobra.Command{
		Use:     "rehearse",
		Short:   "Show what a client gets under each way of stopping a pod",
		Long:    rehearseHelp,
		Example: rehearseExample,
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return measure(cmd, output, func(ctx context.Context) (result, error) { return rehearsal.Run(ctx, o) })
		},
	}
	flags := cmd.Flags()
	flags.DurationVar(&o.Delay, "delay", rehearsal.DefaultDelay, "how long the request takes")
	flags.DurationVar(&o.Grace, "grace", strategy.DefaultGrace,
		"the pods' terminationGracePeriodSeconds, whole seconds")
	proxies := []string{strategy.ProxyPipe, strategy.ProxyEnvoy, strategy.ProxyIstioAgent}
	cli.ChoiceFlag(flags, &o.Proxy, "proxy", strategy.ProxyPipe, proxies,
		"data plane of the sidecars: pipe (embedded); envoy, for a real Envoy; "+
			"or istio-agent, for a real Envoy with Istio's own pilot-agent in Istio's rows")
	localFlags(flags, &o.Setup, &output)
	cmd.AddCommand(rolloutCommand(), serviceCommand(read))
	return cmd
}

// localFlags adds the flags of each rehearsal on this machine.
func localFlags(flags *pflag.FlagSet, s *strategy.Setup, output *cli.Format) {
	s.Progress = os.Stderr
	flags.StringSliceVar(&s.Strategies, "strategy", nil,
		"`names` of the strategies; may be repeated (default all; of a service as-is and lastcall)")
	flags.StringVar(&s.KeepLogs, "keep-logs", "", "empty `folder` for the logs of all processes")
	flags.StringVar(&s.Programs.Lastcall, "lastcall", "",
		"`path` of lastcall (default in this program's folder, or else built)")
	cli.OutputFlag(flags, output, "text, for people, or json")
}

const serviceHelp = `Rehearse the end of your own service on this machine: --app starts it, -f reads grace period,
preStop hook, environment, readiness probe and stop signal from your manifest. For each strategy a pod is replaced by
another while clients send --request; the table shows which requests were lost, why, in which phase, and what would have
saved them. docs/rehearse.md describes it.

The exit code is 1 if the first strategy, by default as-is, loses a request.`

// ReadManifest returns a manifest's settings for the end of a workload's pods. file may be -, for stdin; workload is
// a name, or KIND/NAME, and may be empty if there is one alone; container may be empty.
type ReadManifest func(file string, stdin io.Reader, workload, container string) (service.Pod, error)

func serviceCommand(read ReadManifest) *cobra.Command {
	var (
		o                         service.Options
		output                    cli.Format
		grace                     time.Duration
		file, workload, container string
	)
	cmd := &cobra.Command{
		Use:   "service",
		Short: "Show which requests your own service loses when its pod is replaced",
		Long:  serviceHelp,
		Example: `  lastcallctl rehearse service --app 'node server.js' -f deployment.yaml \
    --request 'GET /slow' --request '4 GET /fast'`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			var errs []error
			if file != "" {
				o.Pod, err = read(file, cmd.InOrStdin(), workload, container)
				errs = append(errs, err)
			}
			if cmd.Flags().Changed("grace") {
				o.Pod.Grace = grace
				if err := strategy.CheckGrace(grace); err != nil { // 0 stands for the manifest's
					errs = append(errs, fmt.Errorf("--grace %w", err))
				}
			}
			if err := errors.Join(errs...); err != nil {
				return cli.UsageError{Err: err}
			}
			return runService(cmd, output, o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Command, "app", "", "`command` of your service; {port}, or the variable PORT, is its port")
	loadFlags(flags, &o.Options)
	if read != nil {
		flags.StringVarP(&file, "filename", "f", "",
			"manifest `file` with the timers of the pods, or - for standard input")
		flags.StringVar(&workload, "workload", "", "`name` of the workload, or KIND/NAME, if the manifest has several")
		flags.StringVar(&container, "container", "",
			"`name` of the container that --app stands for (default the first one with a port)")
	}
	flags.DurationVar(&grace, "grace", strategy.DefaultGrace,
		"terminationGracePeriodSeconds in place of the manifest's, whole seconds")
	flags.DurationVar(&o.Propagation, "propagation", service.DefaultPropagation,
		"endpoint propagation delay of the slowest client")
	flags.IntVar(&o.Repeat, "repeat", 1, "how often to replace the pod; losses are added up")
	localFlags(flags, &o.Setup, &output)
	return cmd
}

const rolloutHelp = `Count the requests that are lost while pods of the built-in app are replaced one after another
under load.

Keep-alive clients send fast and slow requests (up to 5 s), half of them through the gateway and half directly to the
pods. Gateway and clients receive changes of the endpoints late. A refused connection is retried with another pod, as
any client may; every other failure counts as lost. All strategies run at the same time.

The exit code is 1 if the first strategy, by default lastcall, loses a request.`

func rolloutCommand() *cobra.Command {
	var (
		o        = service.Rollout()
		output   cli.Format
		requests int
	)
	cmd := &cobra.Command{
		Use:   "rollout",
		Short: "Count lost requests while pods are replaced under load",
		Long:  rolloutHelp,
		Args:  cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if requests < 1 {
				return cli.UsageError{Err: fmt.Errorf("--requests is %d: must be 1 or more", requests)}
			}
			o.Lasting = time.Duration(float64(requests) / o.Rate * float64(time.Second))
			return runService(cmd, output, o)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&requests, "requests", 20_000,
		"number of requests, for each strategy: lastcall, istio-default, istio-exit-on-zero, prestop-sleep-5, none")
	localFlags(flags, &o.Setup, &output)
	return cmd
}

func runService(cmd *cobra.Command, output cli.Format, o service.Options) error {
	return measure(cmd, output, func(ctx context.Context) (result, error) { return service.Run(ctx, o) })
}

// result is the result of a rehearsal. Its JSON is for programs.
type result interface {
	WriteTable(w io.Writer, s console.Style) error
	Passed() bool // every row is as expected
}

// measure runs a rehearsal until it or the process is ended, and prints its result.
func measure(cmd *cobra.Command, output cli.Format, run func(ctx context.Context) (result, error)) error {
	ctx, stop := cli.SignalContext(cmd.Context())
	defer stop()
	r, err := run(ctx)
	switch {
	case errors.As(err, new(load.OptionError)):
		return cli.UsageError{Err: err}
	case err != nil:
		return err
	case output == cli.JSON:
		encoder := json.NewEncoder(printable.JSONWriter(cmd.OutOrStdout()))
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		err = encoder.Encode(r)
	default:
		err = r.WriteTable(cmd.OutOrStdout(), console.StyleFor(os.Stdout))
	}
	if err == nil && !r.Passed() {
		err = cli.ErrReported
	}
	return err
}

// loadFlags adds the flags of a load.
func loadFlags(flags *pflag.FlagSet, o *load.Options) {
	flags.Func("request", "`request` that clients send, "+load.RequestSyntax+
		"; METHOD may be SSE, WS, TCP or GRPC; may be repeated", func(text string) error {
		r, err := load.ParseRequest(text)
		o.Requests = append(o.Requests, r)
		return err
	})
	flags.StringVar(&o.Descriptors, "descriptors", "", "`file` with the descriptors of gRPC services, "+
		"as protoc --include_imports --descriptor_set_out writes it (default the server's reflection)")
	flags.Func("load", "requests a second, as `200/s` (default as many as keep two in flight, at most 20/s)",
		func(text string) (err error) {
			o.Rate, err = strconv.ParseFloat(strings.TrimSuffix(text, "/s"), 64)
			if err != nil || !(o.Rate > 0 && o.Rate <= load.MaxRate) { // NaN is neither
				return fmt.Errorf("must be requests a second, as 200/s, and at most %g/s", load.MaxRate)
			}
			return nil
		})
	flags.DurationVar(&o.Timeout, "timeout", load.DefaultTimeout, "how long a request may take")
}
