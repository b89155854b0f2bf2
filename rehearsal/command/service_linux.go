package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/rehearsal/outcome"
	"github.com/lastcall-dev/lastcall/rehearsal/service"
)

const serviceHelp = `With --request or -f it rehearses your own service instead: --app starts it, -f reads grace period, preStop hook, environment, readiness probe and stop signal from your manifest. For each strategy a pod is replaced by another while clients send --request; the table shows which requests were lost, why, in which phase, and what would have saved them. The exit code is 1 if the first strategy, by default as-is, loses a request. docs/rehearse.md describes it.`

// ReadManifest returns what a manifest states about the end of a workload's pods. file may be -, for stdin; workload is a
// name, or KIND/NAME, and may be empty if there is one alone; container may be empty.
type ReadManifest func(file string, stdin io.Reader, workload, container string) (service.Pod, error)

// serviceFlags are those of one's own service.
type serviceFlags struct {
	loadFlags
	file                string
	workload, container string
	repeat              int
	read                ReadManifest // nil: this program reads no manifests
}

func (f *serviceFlags) register(flags *pflag.FlagSet) {
	f.loadFlags.register(flags)
	if f.read != nil {
		flags.StringVarP(&f.file, "filename", "f", "", "manifest `file` with the timers of the pods, or - for standard input")
		flags.StringVar(&f.workload, "workload", "", "`name` of the workload, or KIND/NAME, if the manifest has several")
		flags.StringVar(&f.container, "container", "", "`name` of the container that --app stands for (default the first one with a port)")
	}
	flags.IntVar(&f.repeat, "repeat", 1, "how often to replace the pod; losses are added up")
}

// isSet reports whether one's own service is to be rehearsed.
func (f *serviceFlags) isSet() bool { return len(f.requests) > 0 || f.file != "" }

// Flags that only some of the three kinds of rehearsals have.
var (
	ofExperiment = []string{"delay", "gateway", "proxy", "envoy-path", "pilot-agent-path", "client", "picture"}
	ofManifest   = []string{"filename", "workload", "container", "repeat"}
	ofService    = []string{"load", "timeout", "descriptors"}
	ofMachine    = []string{"app", "strategy", "grace", "propagation", "lastcall", "keep-logs"}
)

// check returns an error for a flag that has no effect.
func (f *serviceFlags) check(flags *pflag.FlagSet, isCluster bool) error {
	var others []string
	var reason string
	switch {
	case isCluster:
		others, reason = slices.Concat(ofExperiment, ofManifest, ofMachine), "is a flag of rehearsals on this machine, not of --cluster: leave it out"
	case f.isSet():
		others, reason = ofExperiment, "is a flag of the experiment, which --request and -f replace: leave it out"
	default:
		others, reason = slices.Concat(ofManifest[1:], ofService), "needs --request: it is a flag for your own service"
	}
	for _, name := range others {
		if flags.Changed(name) {
			return cli.UsageError{Err: fmt.Errorf("--%s %s", name, reason)}
		}
	}
	return nil
}

// options parses the flags.
func (f *serviceFlags) options(cmd *cobra.Command) (o service.Options, err error) {
	var errs []error
	l, err := f.loadFlags.parse()
	if err != nil {
		errs = append(errs, err)
	}
	o.Requests, o.Load, o.Timeout, o.Descriptors, o.Repeat = l.Requests, l.Rate, l.Timeout, l.Descriptors, f.repeat
	if f.repeat < 1 {
		errs = append(errs, fmt.Errorf("--repeat is %d: must be 1 or more", f.repeat))
	}
	if f.file != "" {
		if o.Pod, err = f.read(f.file, cmd.InOrStdin(), f.workload, f.container); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return o, cli.UsageError{Err: errors.Join(errs...)}
	}
	return o, nil
}

// run rehearses the service.
func (f *serviceFlags) run(cmd *cobra.Command, output cli.Format, common service.Options, grace time.Duration) error {
	o, err := f.options(cmd)
	if err != nil {
		return err
	}
	o.Command, o.Propagation, o.Strategies, o.KeepLogs, o.Lastcall = common.Command, common.Propagation, common.Strategies, common.KeepLogs, common.Lastcall
	if grace > 0 {
		o.Pod.Grace = grace
	}
	return measure(cmd, output, func(ctx context.Context, self string) (*outcome.Result, error) {
		o.Self, o.Progress = self, os.Stderr
		return service.Run(ctx, o)
	})
}
