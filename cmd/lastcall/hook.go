package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/agent"
	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/internal/sidecar/istio"
	"github.com/lastcall-dev/lastcall/internal/sidecar/tcp"
)

// statusFlags locate the agent's status server.
type statusFlags struct {
	address string
	port    int
	timeout time.Duration
}

func (f *statusFlags) register(flags *pflag.FlagSet, timeout time.Duration) {
	flags.StringVar(&f.address, "status-address", "127.0.0.1", "`address` of the agent's status server")
	flags.IntVar(&f.port, "status-port", istio.StatusPort, "`port` of the agent's status server")
	flags.DurationVar(&f.timeout, "timeout", timeout, "give up after this long; 0 for no limit")
}

// limit returns a context that ends after --timeout, if there is one.
func (f *statusFlags) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if f.timeout > 0 {
		return context.WithTimeout(ctx, f.timeout)
	}
	return context.WithCancel(ctx)
}

// statusTransport connects to the loopback address of either IP family.
var statusTransport = &http.Transport{DialContext: tcp.DialLoopback}

// ask sends one request to the status server and returns the response.
func (f *statusFlags) ask(ctx context.Context, method, path string) (*http.Response, []byte, error) {
	ctx, cancel := f.limit(ctx)
	defer cancel()
	return f.send(ctx, method, path, http.Header{})
}

// hook sends a preStop hook's request, and returns the response. An agent that has stopped must not hold the hook
// beyond the grace period: without --timeout the limit is that of the environment, until the agent has sent its own.
func (f *statusFlags) hook(ctx context.Context, path string) (*http.Response, []byte, error) {
	if f.timeout > 0 {
		return f.ask(ctx, http.MethodPost, path)
	}
	limit := drain.DefaultConfig()
	if settings, err := new(settingsFlags).resolve(); err == nil { // else the agent reports it
		limit = settings.Drain()
	}
	limit.Mode = drain.ExitOnZero
	first, _ := limit.Limit()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(first, func() {
		cancel(fmt.Errorf("the agent has not answered within %v, the grace period less the last-call margin", first))
	})
	defer late.Stop()
	heard := &httptrace.ClientTrace{Got1xxResponse: func(_ int, header textproto.MIMEHeader) error {
		left, err := time.ParseDuration(header.Get(agent.HeaderLimit))
		if err == nil && late.Stop() {
			late = time.AfterFunc(left, func() {
				cancel(fmt.Errorf("the agent has not answered within %v, its own limit",
					left))
			})
		}
		return nil
	}}
	resp, body, err := f.send(httptrace.WithClientTrace(ctx, heard), http.MethodPost, path,
		http.Header{agent.HeaderLimit: {"wanted"}})
	if err != nil && ctx.Err() != nil {
		return nil, nil, fmt.Errorf("POST %s: %w", path, context.Cause(ctx))
	}
	return resp, body, err
}

// show prints the response to a request.
func (f *statusFlags) show(cmd *cobra.Command, method, path string) error {
	resp, body, err := f.ask(cmd.Context(), method, path)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, strings.TrimSpace(string(body)))
	}
	_, err = cmd.OutOrStdout().Write(body)
	return err
}

func (f *statusFlags) send(ctx context.Context, method, path string, header http.Header) (*http.Response, []byte,
	error) {
	at := "http://" + net.JoinHostPort(f.address, strconv.Itoa(f.port)) + "/" + strings.TrimPrefix(path, "/")
	req, err := http.NewRequestWithContext(ctx, method, at, nil)
	if err != nil {
		return nil, nil, usage(fmt.Errorf("%s %s: %w", method, path, err))
	}
	req.Header = header
	resp, err := statusTransport.RoundTrip(req) // no redirects, no proxy of HTTP_PROXY for loopback
	if err != nil {
		return nil, nil, fmt.Errorf("%s %s: %w; is lastcall agent running in this pod, with this --status-port?", method, at,
			err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, nil, fmt.Errorf("%s %s: read the response: %w", method, at, err)
	}
	return resp, body, nil
}

const waitHelp = `Begin the drain, and return when no inbound request is left.

Made for the app's preStop hook: the kubelet sends the app its SIGTERM only after the hook, so the app serves as before until then. The command returns no later than the last call, in time for the app to end within the grace period. If the agent does not answer, it fails when the grace period less the last-call margin has passed: by TERMINATION_GRACE_PERIOD_SECONDS (30), or by the agent's own value once that has received the request.

The kubelet runs the hook also when it restarts only the app's container. If the agent runs with --sidecar native or classic, the hook then returns within a second: no client is refused, and new connections wait for the container. A native sidecar needs a preStop hook of its own for this: lastcall wait --sidecar. For a classic sidecar with captured traffic the command leaves a process (lastcall present) that ends with this container, so that the sidecar knows how long the app needs its outbound connections.

With --ports there is neither agent nor proxy: the kernel's socket table shows the activity at the app's own ports. The command waits for clients that have sent a request and have no response yet, and not for idle keep-alive connections. It returns after the minimum drain, and after the quiet time without a new connection; and no later than 5 s before the end of TERMINATION_GRACE_PERIOD_SECONDS (30), or after --timeout. For HTTP/2, gRPC, WebSocket and TLS the kernel does not show whether a request is in flight: append the protocol to the port, as in 9090/grpc, and the command waits until these connections are closed. Otherwise it assumes HTTP/1.1: connections that stay open after a response count as idle, and the report lists them as assumed. A port without a listener is assumed too, with a warning. With --app-probes the command recognises a restart of the container alone: if the app fails its liveness probe, it returns at once.

An app that finishes its requests at SIGTERM (--app finishes) needs the command only for the minimum drain and the quiet time: it then returns although connections are open.

Next to linkerd's proxy, --linkerd reads its counters: while they show no request in flight at a port, its connections of HTTP/1.1, HTTP/2 and gRPC are idle for certain. All clients of the port must come through the proxy. --linkerd-shutdown, in addition, shuts the proxy down when the quiet time has passed, for clients outside the mesh that keep their connections: the proxy must allow it (annotation config.linkerd.io/proxy-admin-shutdown: enabled), and from then on the app's new outbound connections are refused.

With --envoy the command attaches to the Envoy that already runs in the pod, such as Istio's. Envoy's counters and the kernel show which connections are busy; idle ones do not hold it. In an app's hook it only watches, because the kubelet also runs the hook when it restarts that container alone, which --app-probes recognises here, too. As the hook of Envoy's own container (--sidecar) it drains Envoy, waits, then waits until the app's containers have exited, and ends Envoy by /quitquitquit, so that the access log is whole. If Envoy hides its counters, every open connection counts as busy; if its admin API cannot be used, the ports of --ports are watched.

With --until the command waits for a worker that consumes a queue, until signals of its own report that it is idle: exec:COMMAND (exit code 0 is idle, 1 to 125 busy; blanks separate the arguments, or it is a JSON list; no shell reads it), http://HOST:PORT/PATH (2xx is idle, 503 busy; with Prefer: wait=10 the server may delay its answer), metric:http://HOST:PORT/PATH NAME{LABEL="VALUE"} <= N (the sum of the series with these labels), file:PATH (idle when there is one), !file:PATH (idle when there is none), unix:PATH (the worker keeps the connection open while it is busy). All signals must be idle at the same time. A signal that fails counts as busy, and after --until-stale no longer; the verdict is then assumed. --until alone has no minimum drain and no quiet time, because no client connects to a worker. --ports and --envoy add theirs.

--before runs the app's own preStop hook first: the command or the request after --. The wait follows whatever becomes of it; if it fails, the command exits with 1 after the wait, which the kubelet reports. Without an agent, the deadline and the minimum drain count from the start of the command.

Exit code: 0 when drained, 1 when interrupted or without an agent, 2 for wrong flags; with --fail-on-busy 3 at the deadline and 4 when open connections were assumed idle.`

func waitCommand() *cobra.Command {
	var f statusFlags
	var p portsFlags
	var sidecar bool
	var appPorts string
	var b before
	cmd := &cobra.Command{
		Use:     "wait [--until SIGNAL]… [--ports PORT,… | --envoy ADDRESS] [--before DURATION -- COMMAND…|URL]",
		Short:   "Drain, and return when no request is left: the preStop hook",
		Long:    waitHelp,
		Example: "  lastcall wait\n  lastcall wait --ports 8080,9090/grpc\n  lastcall wait --ports 8080 --timeout 20s -o json\n  lastcall wait --envoy 127.0.0.1:15000 --ports 8080\n  lastcall wait --linkerd 4191 --ports 8080,9090/grpc\n  lastcall wait --until file:/run/worker/idle\n  lastcall wait --until 'metric:http://127.0.0.1:9090/metrics jobs_active <= 0'\n  lastcall wait --before 20s -- /app/leave-the-registry\n  lastcall wait --envoy 127.0.0.1:15000 --pilot-agent 15020 --sidecar",
		Args:    b.check,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.timeout < 0 {
				return usage(fmt.Errorf("--timeout %v: must not be negative", f.timeout))
			}
			if given, err := p.isGiven(cmd.Flags(), sidecar); err != nil {
				return err
			} else if given {
				return b.first(cmd, func() error { return p.wait(cmd, f.timeout, sidecar, b.rest) })
			}
			path := "wait"
			switch {
			case sidecar:
				path = "wait?of=sidecar"
			case appPorts != "":
				if err := checkPorts(appPorts); err != nil {
					return usage(fmt.Errorf("--app-ports: %w", err))
				}
				path = "wait?ports=" + url.QueryEscape(appPorts)
			}
			return b.first(cmd, func() error { return f.wait(cmd, path) })
		},
	}
	cli.Group(cmd.Flags(), "With an agent; --timeout, --before and --sidecar also without", func(flags *pflag.FlagSet) {
		f.register(flags, 0)
		flags.StringVar(&appPorts, "app-ports", "", "the `ports` of this container, separated by commas, or none, in a pod with several app containers: its restart then does not affect connections to the others")
		b.register(flags)
		flags.BoolVar(&sidecar, "sidecar", false, "this is the preStop hook of the agent's own container, or with --envoy of Envoy's, so the pod ends")
	})
	cli.Group(cmd.Flags(), "Without an agent", p.register)
	cli.Common(cmd, "until", "ports", "envoy", "linkerd", "sidecar", "before", "timeout", "minimum-drain", "grace-period", "app-probes", "fail-on-busy")
	return cmd
}

// wait has the agent drain, and returns when no request is left.
func (f *statusFlags) wait(cmd *cobra.Command, path string) error {
	resp, body, err := f.hook(cmd.Context(), path)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the agent did not drain: %s: %s", resp.Status, strings.TrimSpace(string(body)))
	}
	if resp.Header.Get(agent.HeaderPresence) != "" {
		if err := f.leavePresence(); err != nil { // the drain is done all the same
			fmt.Fprintln(cmd.ErrOrStderr(), err)
		}
	}
	return nil
}

// checkPorts accepts a comma-separated list of ports, or none.
func checkPorts(list string) error {
	for text := range strings.SplitSeq(list, ",") {
		if port, err := strconv.ParseUint(text, 10, 16); (err != nil || port == 0) && list != "none" {
			return fmt.Errorf("%q: must be ports from 1 to 65535, separated by commas, or none", text)
		}
	}
	return nil
}

func requestCommand() *cobra.Command {
	var f statusFlags
	cmd := &cobra.Command{
		Use:     "request METHOD PATH",
		Short:   "Send a request to the agent's status server, as pilot-agent request does",
		Example: "  lastcall request POST quitquitquit\n  lastcall request GET metrics",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usage(fmt.Errorf("request takes METHOD and PATH, such as lastcall request GET healthz/ready; got %d arguments", len(args)))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			resp, body, err := f.ask(cmd.Context(), strings.ToUpper(args[0]), args[1])
			if err != nil {
				return err
			}
			if _, err := cmd.OutOrStdout().Write(body); err != nil {
				return err
			}
			if resp.StatusCode/100 != 2 {
				return fmt.Errorf("%s %s: %s", args[0], args[1], resp.Status)
			}
			return nil
		},
	}
	f.register(cmd.Flags(), time.Minute)
	return cmd
}

func configCommand() *cobra.Command {
	var f settingsFlags
	var format cli.Format
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the configuration and the source of each value",
		Long:  "Print the configuration that lastcall agent and lastcall run use with these flags, this environment and these files, and the source of each value.",
		Args:  cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			settings, err := f.resolve()
			if err != nil {
				return usage(err)
			}
			if format == cli.JSON {
				b, err := settings.MarshalJSON()
				if err != nil {
					return err
				}
				_, err = cmd.OutOrStdout().Write(append(b, '\n'))
				return err
			}
			return settings.WriteText(cmd.OutOrStdout())
		},
	}
	f.register(cmd.Flags())
	f.registerStatusPort(cmd.Flags())
	cli.OutputFlag(cmd.Flags(), &format, "output format")
	cli.Environment(cmd, environment(cmd))
	return cmd
}
