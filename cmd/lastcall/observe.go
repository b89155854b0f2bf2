package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/internal/sidecar/observe"
	"github.com/lastcall-dev/lastcall/internal/sidecar/process"
)

const observeHelp = `Observe one termination of an app, and print what its clients lost. The command touches neither the app nor its traffic: the kernel reports how each connection ended.

Name the app by a process, a systemd unit or a container, or give its command after --. The command ends when the app has ended. Its beginning, from which it counts, is the SIGTERM where the command knows it: when it starts the app (it passes SIGTERM and Ctrl-C on), with --terminate, and with --pod. Otherwise it is the moment when the app closes a listener or exits, because a process does not show the signals that it receives.

--pod is for an ephemeral container: it observes the pod's network namespace, which needs no right, until SIGTERM has come and every listener and connection is gone.

To observe an app on this machine takes its user or root; one in another network namespace, such as a container, takes CAP_SYS_ADMIN and CAP_SYS_PTRACE.

What the kernel cannot show is in the report as "cannot know"; the sum of it is the difference between what was lost at least and at most.

Exit code: 0 when no request was lost for certain (--strict: and none may have been), 1 when one was lost or on an error, 2 for wrong flags. The code of the app is in the report.`

// observeFlags are those of lastcall observe.
type observeFlags struct {
	pid                  int
	unit, container      string
	pod, terminate, json bool
	ports, ignorePorts   []uint
	known                string
	strict               bool
	limit, grace         time.Duration
}

func observeCommand() *cobra.Command {
	var f observeFlags
	cmd := &cobra.Command{
		Use:     "observe {--pid PID | --unit UNIT | --container ID | --pod | -- COMMAND…}",
		Short:   "Print what a termination of an app loses, without touching it",
		Long:    observeHelp,
		Example: "  lastcall observe --pid 4711\n  lastcall observe --unit web.service --json\n  lastcall observe --container 3f1c9a0b --terminate\n  lastcall observe -- gunicorn -b :8000 web:app",
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := f.observation(cmd.Context(), args)
			if err != nil {
				return err
			}
			o.stdout, o.stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return o.run(cmd.Context())
		},
	}
	cli.Group(cmd.Flags(), "The app", func(flags *pflag.FlagSet) {
		flags.IntVar(&f.pid, "pid", 0, "observe this `process` and its descendants")
		flags.StringVar(&f.unit, "unit", "", "observe the main process of this systemd `unit`")
		flags.StringVar(&f.container, "container", "", "observe the container of this `ID`, or 8 digits of it")
		flags.BoolVar(&f.pod, "pod", false, "observe the own network namespace, as an ephemeral container of a pod")
		flags.UintSliceVar(&f.ports, "ports", nil, "the app's `ports`, separated by commas; default: all on which it listens")
		flags.UintSliceVar(&f.ignorePorts, "ignore-ports", nil, "`ports` that do not count, such as those for metrics")
		flags.StringVar(&f.known, "known", "", "with --pod: `JSON` of what the spec of the pod shows, as lastcallctl observe passes it")
		flags.BoolVar(&f.terminate, "terminate", false, "send the app SIGTERM at once, and observe what follows")
	})
	cli.Group(cmd.Flags(), "The report", func(flags *pflag.FlagSet) {
		flags.BoolVar(&f.json, "json", false, "print JSON, one object per line: {\"observing\":…}, then the termination")
		flags.BoolVar(&f.strict, "strict", false, "exit with 1 also if a request may have been lost")
		flags.DurationVar(&f.limit, "for", 0, "give up after this long without a termination; 0 for no limit")
		flags.DurationVar(&f.grace, "grace", 0, "the app's grace period: print a preliminary report 1 s before it ends, if requests are in flight then")
	})
	return cmd
}

// observation is one run of the command.
type observation struct {
	observeFlags
	stdout, stderr io.Writer
	watch          *observe.Watch
	child          *process.Child // nil: the app was there before
	exited         <-chan struct{}
	free           func()
}

// observation finds the app and starts to watch.
func (f *observeFlags) observation(ctx context.Context, args []string) (_ *observation, err error) {
	ways := 0
	for _, given := range []bool{f.pid != 0, f.unit != "", f.container != "", f.pod, len(args) > 0} {
		if given {
			ways++
		}
	}
	switch {
	case ways != 1:
		return nil, usage(errors.New("name one app: by --pid, --unit, --container or --pod, or by its command after --"))
	case f.pid < 0:
		return nil, usage(fmt.Errorf("--pid %d: must be a process number", f.pid))
	case f.terminate && f.pod:
		return nil, usage(errors.New("--terminate: cannot be used with --pod, whose SIGTERM comes from the kubelet"))
	case f.known != "" && !f.pod:
		return nil, usage(errors.New("--known: only with --pod"))
	case f.limit < 0 || f.grace < 0:
		return nil, usage(errors.New("--for and --grace must not be negative"))
	}
	counted, err := ports("ports", f.ports)
	if err != nil {
		return nil, err
	}
	ignore, err := ports("ignore-ports", f.ignorePorts)
	if err != nil {
		return nil, err
	}
	ctx, free := context.WithCancel(ctx)
	o := &observation{observeFlags: *f, free: free}
	defer func() {
		if err != nil {
			o.close()
		}
	}()
	var options observe.Options
	namespace := ""
	switch {
	case len(args) > 0:
		c := exec.Command(args[0], args[1:]...)
		c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stderr, os.Stderr
		if o.child, err = process.Start(c); err != nil {
			return nil, err
		}
		o.pid, o.exited = o.child.Pid(), o.child.Done()
		options = observe.Options{Process: o.pid, Shared: true}
	case f.pod:
		if f.known != "" {
			if err := json.Unmarshal([]byte(f.known), &options); err != nil {
				return nil, usage(fmt.Errorf("--known: %w", err))
			}
		}
		options.Local = func(netip.Addr) bool { return true } // which ones are the node's, a pod does not know
	default:
		if f.unit != "" {
			o.pid, err = observe.OfUnit(ctx, f.unit)
		} else if f.container != "" {
			o.pid, err = observe.OfContainer(f.container)
		}
		if err != nil {
			return nil, err
		}
		if options, namespace, err = observe.OfProcess(o.pid); err != nil {
			return nil, err
		}
		if o.exited, err = observe.Exited(ctx, o.pid); err != nil {
			return nil, err
		}
	}
	options.Ports, options.IgnorePorts = counted, append(options.IgnorePorts, ignore...)
	if o.watch, err = observe.Open(namespace, options); err != nil {
		return nil, err
	}
	if err = o.watch.Start(); err != nil {
		return nil, err
	}
	return o, nil
}

func (o *observation) close() {
	if o.child != nil {
		o.child.Kill()
		<-o.child.Done()
	}
	if o.watch != nil {
		_ = o.watch.Close()
	}
	o.free()
}

func (o *observation) run(ctx context.Context) error {
	defer o.close()
	received := make(chan os.Signal, 4)
	signal.Notify(received, syscall.SIGTERM, syscall.SIGINT) // before announce, after which one may come
	defer signal.Stop(received)
	app := observe.App{
		Watch: o.watch, Exited: o.exited, Exit: o.exit, Signals: received,
		Limit: o.limit, Early: o.grace - time.Second, Print: o.print,
	}
	if o.child != nil {
		app.Pass = o.child.Signal
	} else if err := o.announce(); err != nil {
		return err
	}
	if o.terminate {
		app.Terminate = o.sendTerminate
	}
	t, err := app.Follow(ctx)
	switch {
	case errors.Is(err, observe.ErrInterrupted), errors.Is(err, observe.ErrNoTermination):
		fmt.Fprintln(o.stderr, "lastcall:", err)
		return nil
	case err != nil:
		return err
	}
	return o.report(t)
}

func (o *observation) sendTerminate() error {
	if err := syscall.Kill(o.pid, syscall.SIGTERM); err != nil {
		return fmt.Errorf("send SIGTERM to process %d: %w", o.pid, err)
	}
	return nil
}

// exit is how the app ended: only a parent knows.
func (o *observation) exit() observe.Exit {
	if o.child == nil {
		return observe.Exit{}
	}
	code := o.child.Code()
	return observe.Exit{Known: true, Code: code, Killed: code == process.SignalCode(syscall.SIGKILL)}
}

// announce prints that the observation has begun.
func (o *observation) announce() error {
	ports := o.watch.Listening()
	if o.json {
		observing := map[string]any{"ports": append([]uint16{}, ports...)}
		return json.NewEncoder(o.stdout).Encode(map[string]any{"observing": observing})
	}
	_, err := fmt.Fprintf(o.stdout, "observing ports %v\n", ports)
	return err
}

func (o *observation) print(t observe.Termination) (err error) {
	if o.json {
		err = json.NewEncoder(o.stdout).Encode(t)
	} else {
		_, err = io.WriteString(o.stdout, t.Text())
	}
	return err
}

// report prints the result; lost requests are exit code 1.
func (o *observation) report(t observe.Termination) error {
	if err := o.print(t); err != nil {
		return err
	}
	if t.Lost.Total() > 0 || o.strict && t.Verdict != observe.Clean {
		return cli.ErrReported
	}
	return nil
}
