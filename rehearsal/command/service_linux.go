package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/rehearsal"
	"github.com/lastcall-dev/lastcall/rehearsal/outcome"
	"github.com/lastcall-dev/lastcall/rehearsal/service"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

const serviceHelp = `Rehearse the end of your own service on this machine: --app starts it, -f reads grace period,
preStop hook, environment, readiness probe and stop signal from your manifest. For each strategy a pod is replaced by
another while clients send --request; the table shows which requests were lost, why, in which phase, and what would have
saved them. docs/rehearse.md describes it.

The exit code is 1 if the first strategy, by default as-is, loses a request.`

// ReadManifest returns a manifest's settings for the end of a workload's pods. file may be -, for stdin; workload is
// a name, or KIND/NAME, and may be empty if there is one alone; container may be empty.
type ReadManifest func(file string, stdin io.Reader, workload, container string) (service.Pod, error)

// Service is the command that rehearses one's own service. read is nil for a program that reads no manifests.
func Service(read ReadManifest) *cobra.Command {
	var (
		o                                      service.Options
		load                                   LoadFlags
		local                                  localFlags
		grace                                  time.Duration
		propagation, file, workload, container string
	)
	cmd := &cobra.Command{
		Use:   "service",
		Short: "Show which requests your own service loses when its pod is replaced",
		Long:  serviceHelp,
		Example: `  lastcallctl rehearse service --app 'node server.js' -f deployment.yaml \
    --request 'GET /slow' --request '4 GET /fast'`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			errs := []error{load.Parse()}
			if o.Propagation, err = service.ParseSpan(propagation); err != nil {
				errs = append(errs, fmt.Errorf("--propagation: %w", err))
			}
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
			o.Options, o.Strategies, o.KeepLogs, o.Lastcall = load.Options, local.strategies, local.keepLogs, local.lastcall
			return runService(cmd, local.output, o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Command, "app", "", "`command` of your service; {port}, or the variable PORT, is its port")
	load.Register(flags)
	if read != nil {
		flags.StringVarP(&file, "filename", "f", "", "manifest `file` with the timers of the pods, or - for standard input")
		flags.StringVar(&workload, "workload", "", "`name` of the workload, or KIND/NAME, if the manifest has several")
		flags.StringVar(&container, "container", "",
			"`name` of the container that --app stands for (default the first one with a port)")
	}
	flags.DurationVar(&grace, "grace", rehearsal.DefaultGrace,
		"terminationGracePeriodSeconds in place of the manifest's, whole seconds")
	flags.StringVar(&propagation, "propagation", service.DefaultPropagation.String(),
		"endpoint propagation `delay` of the fastest and of the slowest client, or of the slowest alone")
	flags.IntVar(&o.Repeat, "repeat", 1, "how often to replace the pod; losses are added up")
	local.register(flags)
	return cmd
}

const rolloutHelp = `Count the requests that are lost while pods of the built-in app are replaced one after another
under load.

Keep-alive clients send fast and slow requests (up to 5 s), half of them through the gateway and half directly to the
pods. Gateway and clients receive changes of the endpoints late. A refused connection is retried with another pod, as
any client may; every other failure counts as lost. All strategies run at the same time.

The exit code is 1 if the first strategy, by default lastcall, loses a request.`

// Defaults of a rollout.
const (
	rolloutRequests = 20_000
	rolloutRate     = 200
)

func rolloutCommand() *cobra.Command {
	var (
		local              localFlags
		grace, propagation time.Duration
		requests, rate     int
	)
	cmd := &cobra.Command{
		Use:   "rollout",
		Short: "Count lost requests while pods are replaced under load",
		Long:  rolloutHelp,
		Args:  cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if requests < 1 || rate < 1 {
				return cli.UsageError{Err: fmt.Errorf("--requests is %d and --rate is %d: must be 1 or more", requests, rate)}
			}
			o := service.Rollout(float64(rate), time.Duration(float64(requests)/float64(rate)*float64(time.Second)))
			o.Propagation, o.Pod.Grace = service.Span{To: propagation}, grace
			o.Strategies, o.KeepLogs, o.Lastcall = local.strategies, local.keepLogs, local.lastcall
			return runService(cmd, local.output, o)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&requests, "requests", rolloutRequests,
		"number of requests, for each strategy: lastcall, istio-default, istio-exit-on-zero, prestop-sleep-5, none")
	flags.IntVar(&rate, "rate", rolloutRate, "requests per second, for each strategy")
	flags.DurationVar(&propagation, "propagation", service.DefaultPropagation.To, "maximum endpoint propagation delay")
	flags.DurationVar(&grace, "grace", rehearsal.DefaultGrace, "the pods' terminationGracePeriodSeconds, whole seconds")
	local.register(flags)
	return cmd
}

func runService(cmd *cobra.Command, output cli.Format, o service.Options) error {
	return Measure(cmd, output, func(ctx context.Context, self string) (*outcome.Result, error) {
		o.Self, o.Progress = self, os.Stderr
		return service.Run(ctx, o)
	})
}
