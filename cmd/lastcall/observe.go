package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/internal/sidecar/observe"
)

const observeHelp = `Observe one termination of a pod, and print what its clients lost. The command touches neither the app nor its traffic: the kernel reports how each connection ended.

Made for an ephemeral container, as lastcallctl observe adds it: it observes the pod's network namespace, which needs no right, until SIGTERM has come and every listener and connection is gone.

What the kernel cannot show is in the report as "cannot know"; the sum of it is the difference between what was lost at least and at most.

Exit code: 0 when no request was lost for certain (--strict: and none may have been), 1 when one was lost or on an error, 2 for wrong flags.`

// observeFlags are those of lastcall observe.
type observeFlags struct {
	pod, json          bool
	ports, ignorePorts []uint
	known              string
	strict             bool
	limit, grace       time.Duration
	stdout             io.Writer
}

func observeCommand() *cobra.Command {
	var f observeFlags
	cmd := &cobra.Command{
		Use:     "observe --pod",
		Short:   "Print what the termination of a pod loses, without touching it",
		Long:    observeHelp,
		Example: "  lastcall observe --pod --json",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.stdout = cmd.OutOrStdout()
			return f.run(cmd.Context(), cmd.ErrOrStderr())
		},
	}
	cli.Group(cmd.Flags(), "The app", func(flags *pflag.FlagSet) {
		flags.BoolVar(&f.pod, "pod", false, "observe this container's own network namespace, as an ephemeral container of a pod")
		flags.UintSliceVar(&f.ports, "ports", nil, "the app's `ports`, separated by commas; default: all on which it listens")
		flags.UintSliceVar(&f.ignorePorts, "ignore-ports", nil, "`ports` that do not count, such as those for metrics")
		flags.StringVar(&f.known, "known", "", "`JSON` of what the spec of the pod shows, as lastcallctl observe passes it")
	})
	cli.Group(cmd.Flags(), "The report", func(flags *pflag.FlagSet) {
		flags.BoolVar(&f.json, "json", false, "print JSON, one object per line: {\"observing\":…}, then the termination")
		flags.BoolVar(&f.strict, "strict", false, "exit with 1 also if a request may have been lost")
		flags.DurationVar(&f.limit, "for", 0, "give up after this long without a termination; 0 for no limit")
		flags.DurationVar(&f.grace, "grace", 0, "the app's grace period: print a preliminary report 1 s before it ends, if requests are in flight then")
	})
	return cmd
}

// options are what counts.
func (f *observeFlags) options() (o observe.Options, err error) {
	switch {
	case !f.pod:
		return o, usage(errors.New("observe needs --pod, as an ephemeral container of the pod to observe: see lastcallctl observe"))
	case f.limit < 0 || f.grace < 0:
		return o, usage(errors.New("--for and --grace must not be negative"))
	}
	if f.known != "" {
		if err := json.Unmarshal([]byte(f.known), &o); err != nil {
			return o, usage(fmt.Errorf("--known: %w", err))
		}
	}
	o.Local = func(netip.Addr) bool { return true } // which ones are the node's, a pod does not know
	if o.Ports, err = ports("ports", f.ports); err != nil {
		return o, err
	}
	ignore, err := ports("ignore-ports", f.ignorePorts)
	o.IgnorePorts = append(o.IgnorePorts, ignore...)
	return o, err
}

func (f *observeFlags) run(ctx context.Context, stderr io.Writer) error {
	o, err := f.options()
	if err != nil {
		return err
	}
	watch, err := observe.Open("", o)
	if err != nil {
		return err
	}
	defer watch.Close()
	if err = watch.Start(); err != nil {
		return err
	}
	received := make(chan os.Signal, 4)
	signal.Notify(received, syscall.SIGTERM, syscall.SIGINT) // before announce, after which one may come
	defer signal.Stop(received)
	if err := f.announce(watch.Listening()); err != nil {
		return err
	}
	pod := observe.Pod{Watch: watch, Signals: received, Limit: f.limit, Early: f.grace - time.Second, Print: f.print}
	t, err := pod.Follow(ctx)
	switch {
	case errors.Is(err, observe.ErrInterrupted), errors.Is(err, observe.ErrNoTermination):
		fmt.Fprintln(stderr, "lastcall:", err)
		return nil
	case err != nil:
		return err
	}
	return f.report(t)
}

// announce prints that the observation has begun.
func (f *observeFlags) announce(ports []uint16) error {
	if f.json {
		observing := map[string]any{"ports": append([]uint16{}, ports...)}
		return json.NewEncoder(f.stdout).Encode(map[string]any{"observing": observing})
	}
	_, err := fmt.Fprintf(f.stdout, "observing ports %v\n", ports)
	return err
}

func (f *observeFlags) print(t observe.Termination) (err error) {
	if f.json {
		err = json.NewEncoder(f.stdout).Encode(t)
	} else {
		_, err = io.WriteString(f.stdout, t.Text())
	}
	return err
}

// report prints the result; lost requests are exit code 1.
func (f *observeFlags) report(t observe.Termination) error {
	if err := f.print(t); err != nil {
		return err
	}
	if t.Lost.Total() > 0 || f.strict && t.Verdict != observe.Clean {
		return cli.ErrReported
	}
	return nil
}
