package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/internal/sidecar/observe"
)

const observeHelp = `Observe one termination of an app, and print what its clients lost. The command touches neither the
app nor its traffic: the kernel reports how each connection ended.

Name the app by a process, a systemd unit or a container, or give its command after --. The command ends when the app
has ended. Its beginning, from which it counts, is the SIGTERM where the command knows it: when it starts the app (it
passes SIGTERM and Ctrl-C on), with --terminate, and with --pod. Otherwise it is the moment when the app closes a
listener or exits, because a process does not show the signals that it receives.

--pod is for an ephemeral container: it observes the pod's network namespace, which needs no right, until SIGTERM has
come and every listener and connection is gone.

To observe an app on this machine takes its user or root; one in another network namespace, such as a container, takes
CAP_SYS_ADMIN and CAP_SYS_PTRACE.

What the kernel cannot show is in the report as "unclear"; the sum of it is the difference between what was lost at
least and at most.

Exit code: 0 when no request was lost for certain (--strict: and none may have been), 1 when one was lost or on an
error, 2 for wrong flags. The code of the app is in the report.`

// observeFlags are those of lastcall observe.
type observeFlags struct {
	app                observedApp
	ports, ignorePorts []uint
	known              string
	strict             bool
	grace              time.Duration
}

func observeCommand() *cobra.Command {
	var f observeFlags
	cmd := &cobra.Command{
		Use:   "observe {--pid PID | --unit UNIT | --container ID | --pod | -- COMMAND…}",
		Short: "Print what a termination of an app loses, without touching it",
		Long:  observeHelp,
		Example: `  lastcall observe --pid 4711
  lastcall observe --unit web.service --json
  lastcall observe --container 3f1c9a0b --terminate
  lastcall observe -- gunicorn -b :8000 web:app`,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	cli.Group(cmd.Flags(), "The app", func(flags *pflag.FlagSet) {
		flags.IntVar(&f.app.PID, "pid", 0, "observe this `process` and its descendants")
		flags.StringVar(&f.app.Unit, "unit", "", "observe the main process of this systemd `unit`")
		flags.StringVar(&f.app.Container, "container", "", "observe the container of this `ID`, or 8 digits of it")
		flags.BoolVar(&f.app.Pod, "pod", false, "observe the own network namespace, as an ephemeral container of a pod")
		flags.UintSliceVar(&f.ports, "ports", nil, "the app's `ports`, separated by commas; default: all on which it listens")
		flags.UintSliceVar(&f.ignorePorts, "ignore-ports", nil, "`ports` that do not count, such as those for metrics")
		flags.StringVar(&f.known, "known", "", "with --pod: `JSON` of what the spec of the pod shows, as lastcallctl observe passes it")
		flags.BoolVar(&f.app.Terminate, "terminate", false, "send the app SIGTERM at once, and observe what follows")
	})
	cli.Group(cmd.Flags(), "The report", func(flags *pflag.FlagSet) {
		flags.BoolVar(&f.app.JSON, "json", false, "print JSON, one object per line: {\"observing\":…}, then the termination")
		flags.BoolVar(&f.strict, "strict", false, "exit with 1 also if a request may have been lost")
		flags.DurationVar(&f.app.Limit, "for", 0, "give up after this long without a termination; 0 for no limit")
		flags.DurationVar(&f.grace, "grace", 0, "the app's grace period: print a preliminary report 1 s before it ends, if requests are in flight then")
	})
	return cmd
}

func (f *observeFlags) run(cmd *cobra.Command, args []string) (err error) {
	names := 0
	for _, given := range []bool{f.app.PID != 0, f.app.Unit != "", f.app.Container != "", f.app.Pod, len(args) > 0} {
		if given {
			names++
		}
	}
	switch {
	case names != 1:
		return usagef("name one app: by --pid, --unit, --container or --pod, or by its command after --")
	case f.app.PID < 0:
		return usagef("--pid %d: must be a process number", f.app.PID)
	case f.app.Terminate && f.app.Pod:
		return usagef("--terminate: cannot be used with --pod, whose SIGTERM comes from the kubelet")
	case f.known != "" && !f.app.Pod:
		return usagef("--known: only with --pod")
	case f.app.Limit < 0 || f.grace < 0:
		return usagef("--for and --grace must not be negative")
	}
	o := &f.app.Options
	if f.known != "" {
		if err := json.Unmarshal([]byte(f.known), o); err != nil {
			return usagef("--known: %w", err)
		}
	}
	if o.Ports, err = ports("ports", f.ports); err != nil {
		return err
	}
	ignored, err := ports("ignore-ports", f.ignorePorts)
	if err != nil {
		return err
	}
	o.IgnorePorts = append(o.IgnorePorts, ignored...)
	f.app.Command, f.app.Early, f.app.Out = args, f.grace-time.Second, cmd.OutOrStdout()
	t, err := f.app.follow(cmd.Context())
	switch {
	case errors.Is(err, errInterrupted), errors.Is(err, errNoTermination):
		fmt.Fprintln(cmd.ErrOrStderr(), "lastcall:", err)
		return nil
	case err != nil:
		return err
	case t.Lost.Total() > 0 || f.strict && t.Verdict != observe.VerdictClean:
		return cli.ErrReported
	}
	return nil
}
