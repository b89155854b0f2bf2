package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/internal/cli"
	"github.com/lastcall-dev/lastcall/internal/hotrestart"
	"github.com/lastcall-dev/lastcall/internal/meshconfig"
	"github.com/lastcall-dev/lastcall/internal/pipe"
)

// successionFlags say how lastcall run is followed by a successor.
type successionFlags struct {
	pidFile string
	timeout time.Duration
}

func (f *successionFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.pidFile, "pid-file", "", "`file` for the number of the process that serves; after a hot restart it names the old one until that has drained")
	flags.DurationVar(&f.timeout, "hot-restart-timeout", hotrestart.DefaultTimeout, "how long a successor waits for its app to accept connections; 1s or more")
}

// isAskedFor says whether a signal may start a successor. Else it could be an
// accident (a closed terminal's SIGHUP), and what has started us would not know the
// process that goes on.
func (f *successionFlags) isAskedFor() bool {
	return f.pidFile != "" || os.Getenv("NOTIFY_SOCKET") != ""
}

// begin takes over from a predecessor, if there is one, and makes a hot restart possible.
func (f *successionFlags) begin(run *agentFlags, settings *meshconfig.Settings, requests <-chan struct{}, log *slog.Logger) (*hotrestart.Service, error) {
	if f.timeout < time.Second {
		return nil, usage{fmt.Errorf("--hot-restart-timeout %v: must be 1s or more", f.timeout)}
	}
	grace := settings.GracePeriod.Value
	o := hotrestart.ServiceOptions{
		Refused:  run.refusesSuccessor(),
		Requests: requests,
		Notifier: hotrestart.NotifierFromEnvironment(),
		LastCall: grace - min(settings.Margin.Value, grace/4),
		Log:      log,
	}
	if o.Refused == nil || f.pidFile != "" {
		var err error
		if o.Handover, err = hotrestart.Begin(hotrestart.Options{PIDFile: f.pidFile, Timeout: f.timeout}); err != nil {
			return nil, err
		}
	}
	o.Watchdog = hotrestart.WatchdogTime(o.Handover != nil && o.Handover.Succeeds())
	if !f.isAskedFor() {
		o.RefusedBySignal = errors.New("a signal restarts hot only with --pid-file or under systemd; lastcall hot-restart asks by the status port")
	}
	return hotrestart.NewService(o), nil
}

// refusesSuccessor is why there can be no hot restart; nil when there can.
func (f *agentFlags) refusesSuccessor() error {
	isEnvoy, err := f.envoy.isEnvoy()
	switch {
	case err != nil:
		return err
	case isEnvoy:
		return errors.New("a hot restart with --proxy envoy is not supported yet: only the pipe hands its sockets over")
	case f.capture.outboundAddress() != "":
		return errors.New("a hot restart is not supported with captured outbound traffic: its connections are the app's, which ends")
	case len(f.inbound) == 0:
		return errors.New("a hot restart needs --inbound LISTEN=APP")
	case os.Getenv("NOTIFY_SOCKET") != "" && f.succession.pidFile == "":
		return errors.New("a hot restart under systemd needs lastcall run --pid-file FILE and PIDFile=FILE in the unit: else systemd takes the end of the old process for that of the service")
	case os.Getpid() == 1:
		return errors.New("a hot restart is not possible as process 1: the container ends with it, whoever follows; replace the container instead")
	}
	in, err := pipe.ParseInbound(f.inbound[0])
	if err != nil {
		return err
	}
	if _, port, _ := net.SplitHostPort(in.App); port != "0" {
		return fmt.Errorf("a hot restart runs two apps for a while, and two cannot both listen on %s: use port 0 (--inbound %s=127.0.0.1:0) and let the app listen on {port} in its arguments, or on PORT of its environment", in.App, in.Listen)
	}
	return nil
}

const hotRestartHelp = `Replace a lastcall run and its app by new processes without losing a request.

The successor is the program now at the path that the old one was started from,
with the same arguments; it reads all configuration again. It takes over the
listening sockets once its app accepts connections. Then the old process drains:
it closes idle connections, serves requests in flight, stops its app and exits,
after parentShutdownDuration (60s) at the latest. A successor that fails to start
changes nothing.

Asks on the status port, waits until the successor serves, and otherwise fails with
the reason. With --pid-file it asks the process named there instead,
and waits until the file names the successor: until the old one has drained. Only
root and the user of that process may ask it.`

func hotRestartCommand() *cobra.Command {
	var f statusFlags
	var pidFile string
	cmd := &cobra.Command{
		Use:     "hot-restart",
		Short:   "Replace a lastcall run and its app without losing a request",
		Long:    hotRestartHelp,
		Example: "  lastcall hot-restart --status-port 15020\n  lastcall hot-restart --pid-file /run/lastcall.pid",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if pidFile != "" {
				return restartByPIDFile(cmd.Context(), pidFile, f.timeout)
			}
			resp, body, err := f.ask(cmd.Context(), http.MethodPost, "hot-restart")
			if err != nil {
				return err
			}
			if resp.StatusCode != http.StatusOK {
				return fmt.Errorf("no hot restart: %s", strings.TrimSpace(string(body)))
			}
			_, err = cmd.OutOrStdout().Write(body)
			return err
		},
	}
	f.register(cmd.Flags(), 3*time.Minute)
	cmd.Flags().StringVar(&pidFile, "pid-file", "", "the `file` that lastcall run was given as --pid-file")
	return cmd
}

// restartByPIDFile asks the process that a file names, and waits until the file
// no longer names it: until it has drained.
func restartByPIDFile(ctx context.Context, file string, atMost time.Duration) error {
	if atMost > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, atMost)
		defer cancel()
	}
	successor, predecessor, err := hotrestart.RequestRestart(ctx, file)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer about a hot restart within %v (--timeout); it may still come to serve", atMost)
	}
	if err != nil {
		return err
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		switch now, err := hotrestart.ReadPIDFile(file); {
		case err != nil:
			return fmt.Errorf("process %d serves, but its service has ended: %w", successor, err)
		case now != predecessor && hotrestart.IsAlive(now):
			return nil
		case !hotrestart.IsAlive(successor) && now == predecessor:
			return fmt.Errorf("process %d served, and has ended", successor)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("process %d serves, but process %d has not drained within %v (--timeout)", successor, predecessor, atMost)
		}
	}
}
