package main

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/internal/sidecar/hotrestart"
	"github.com/lastcall-dev/lastcall/internal/sidecar/inbound"
	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
)

// successionFlags configure the hot restart of lastcall run.
type successionFlags struct {
	pidFile string
	timeout time.Duration
}

func (f *successionFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.pidFile, "pid-file", "", "`file` for the process id; after a hot restart it holds that of the old process until it has drained")
	flags.DurationVar(&f.timeout, "hot-restart-timeout", hotrestart.DefaultTimeout,
		"how long the new process of a hot restart waits for its app to accept connections; 1s or more")
}

// isEnabled reports whether a signal may start a hot restart. Without a PID file or systemd, the parent process would
// not know the new process, and SIGHUP may come from a terminal that was closed.
func (f *successionFlags) isEnabled() bool {
	return f.pidFile != "" || os.Getenv("NOTIFY_SOCKET") != ""
}

// begin takes over from the old process of a hot restart, if there is one, and prepares for the next restart.
func (f *successionFlags) begin(run *agentFlags, settings *meshconfig.Settings, requests <-chan struct{},
	log *slog.Logger) (*hotrestart.Service, error) {
	if f.timeout < time.Second {
		return nil, usagef("--hot-restart-timeout %v: must be 1s or more", f.timeout)
	}
	o := hotrestart.ServiceOptions{
		Refused:  run.refusesSuccessor(),
		Requests: requests,
		Notifier: hotrestart.NotifierFromEnvironment(),
		LastCall: settings.Drain().LastCallAfter(),
		Log:      log,
	}
	if o.Refused == nil || f.pidFile != "" {
		var err error
		if o.Handover, err = hotrestart.Begin(hotrestart.Options{PIDFile: f.pidFile, Timeout: f.timeout}); err != nil {
			return nil, err
		}
	}
	o.Watchdog = hotrestart.WatchdogTime(o.Handover.Succeeds())
	if !f.isEnabled() {
		o.RefusedBySignal = errors.New("a hot restart by signal needs --pid-file or systemd; use lastcall hot-restart, which asks on the status port")
	}
	return hotrestart.NewService(o), nil
}

// refusesSuccessor is the reason why a hot restart is not possible; nil if it is.
func (f *agentFlags) refusesSuccessor() error {
	switch {
	case f.envoy.isEnvoy():
		return errors.New("a hot restart with --proxy envoy is not supported: only the embedded proxy hands over its sockets")
	case f.capture.outboundAddress() != "":
		return errors.New("a hot restart with captured outbound traffic is not supported: those connections end with the app")
	case len(f.inbound) == 0:
		return errors.New("a hot restart needs --inbound LISTEN=APP")
	case os.Getenv("NOTIFY_SOCKET") != "" && f.succession.pidFile == "":
		return errors.New("a hot restart under systemd needs lastcall run --pid-file FILE and PIDFile=FILE in the unit: otherwise systemd takes the exit of the old process for that of the service")
	case os.Getpid() == 1:
		return errors.New("a hot restart is not possible as process 1, because the container ends with that process: replace the container instead")
	}
	in, err := inbound.Parse(f.inbound[0])
	if err != nil {
		return err
	}
	if _, port, _ := net.SplitHostPort(in.App); port != "0" {
		return fmt.Errorf("a hot restart runs two apps at the same time, and they cannot both listen on %s: use port 0 (--inbound %s=127.0.0.1:0) and let the app listen on {port} in its arguments, or on PORT of its environment", in.App, in.Listen)
	}
	return nil
}

const hotRestartHelp = `Replace a lastcall run and its app with new processes without losing a request.

The new process is the program at the path that the old one was started from, with the same arguments; it reads all configuration again. It takes over the listening sockets once its app accepts connections. Then the old process drains: it closes idle connections, serves the requests in flight, stops its app and exits, no later than parentShutdownDuration (60s) after that. If the new process fails to start, nothing changes.

The command asks on the status port, waits until the new process serves, and otherwise fails with the reason.`

func hotRestartCommand() *cobra.Command {
	var f statusFlags
	cmd := &cobra.Command{
		Use:     "hot-restart",
		Short:   "Replace a lastcall run and its app without losing a request",
		Long:    hotRestartHelp,
		Example: "  lastcall hot-restart --status-port 15020",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.show(cmd, http.MethodPost, "hot-restart")
		},
	}
	f.register(cmd.Flags(), 3*time.Minute)
	return cmd
}

// freePort replaces port 0 with a free one. It avoids the kernel's range for outgoing connections, one of which could
// take the port before the app listens; next to a busy service this has happened.
func freePort(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port != "0" {
		return address, nil
	}
	low, high := ephemeralPorts()
	for range 200 {
		at := lowestFree + rand.IntN(1<<16-lowestFree)
		if at >= low && at <= high {
			continue
		}
		free := net.JoinHostPort(host, strconv.Itoa(at))
		ln, err := net.Listen("tcp", free)
		if err == nil {
			return free, ln.Close()
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return "", fmt.Errorf("find a free port for the app at %s: %w", address, err)
		}
	}
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return "", fmt.Errorf("find a free port for the app at %s: %w", address, err)
	}
	defer ln.Close()
	return ln.Addr().String(), nil
}

// lowestFree is above the usual ports of servers, including Istio's 15000 to 15090.
const lowestFree = 20000

// ephemeralPorts is the kernel's range for outgoing connections (ip(7)), or its default where it is not readable.
func ephemeralPorts() (low, high int) {
	b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err == nil {
		_, err = fmt.Sscan(string(b), &low, &high)
	}
	if err != nil {
		return 32768, 60999
	}
	return low, high
}
