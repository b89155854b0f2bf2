package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/poll"
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
	f.registerAddress(flags)
	f.registerTimeout(flags, timeout)
}

func (f *statusFlags) registerAddress(flags *pflag.FlagSet) {
	flags.StringVar(&f.address, "status-address", "127.0.0.1", "`address` of the agent's status server")
	flags.IntVar(&f.port, "status-port", istio.StatusPort, "`port` of the agent's status server")
}

func (f *statusFlags) registerTimeout(flags *pflag.FlagSet, timeout time.Duration) {
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

func (f *statusFlags) send(ctx context.Context, method, path string, header http.Header) (*http.Response, []byte,
	error) {
	at := "http://" + net.JoinHostPort(f.address, strconv.Itoa(f.port)) + "/" + strings.TrimPrefix(path, "/")
	req, err := http.NewRequestWithContext(ctx, method, at, nil)
	if err != nil {
		return nil, nil, usagef("%s %s: %w", method, path, err)
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

const connectionsHelp = `List the clients' connections, the oldest first: the client, its protocol, whether the
connection is busy, and its open requests. The command asks the agent on its status port: GET /connections.

States: busy, idle, quiet (a probe's request, which does not hold the drain), handshake (TLS), closing (closed by
lastcall, not yet by the client). TLS "passed" is terminated by the app. RECEIVED and SENT are bytes on the wire.`

func connectionsCommand() *cobra.Command {
	var f statusFlags
	var output cli.Format
	cmd := &cobra.Command{
		Use:     "connections",
		Short:   "List the live connections of the agent in this pod",
		Long:    connectionsHelp,
		Example: "  lastcall connections\n  lastcall connections -o json",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			resp, body, err := f.ask(cmd.Context(), http.MethodGet, "connections?format="+string(output))
			if err != nil {
				return err
			}
			if resp.StatusCode != http.StatusOK {
				return fmt.Errorf("GET connections: %s: %s", resp.Status, strings.TrimSpace(string(body)))
			}
			_, err = cmd.OutOrStdout().Write(body)
			return err
		},
	}
	f.register(cmd.Flags(), 10*time.Second)
	cli.OutputFlag(cmd.Flags(), &output, "output format")
	return cmd
}

const readyHelp = `Return when the agent serves and, with lastcall run, the app accepts connections on each of its
ports.

Made for the postStart hook of a sidecar that starts before the app (holdApplicationUntilProxyStarts), as pilot-agent
wait: the kubelet starts the next container only when the hook has returned.`

func readyCommand() *cobra.Command {
	var f statusFlags
	cmd := &cobra.Command{
		Use:   "ready",
		Short: "Return when the agent serves: the sidecar's postStart hook",
		Long:  readyHelp,
		Args:  cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := f.limit(cmd.Context())
			defer cancel()
			var why error
			late := poll.Until(ctx, 20*time.Millisecond, func() bool {
				resp, body, err := f.ask(ctx, http.MethodGet, "healthz/ready")
				if err == nil && resp.StatusCode != http.StatusOK {
					err = fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(body)))
				}
				why = err
				return err == nil
			})
			if late != nil {
				return fmt.Errorf("the agent is not ready after %v: %w", f.timeout, why)
			}
			return nil
		},
	}
	f.register(cmd.Flags(), time.Minute)
	return cmd
}

func requestCommand() *cobra.Command {
	var f statusFlags
	cmd := &cobra.Command{
		Use:     "request METHOD PATH",
		Short:   "Send a request to the agent's status server, as pilot-agent request does",
		Example: "  lastcall request POST quitquitquit\n  lastcall request GET metrics",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usagef("request takes METHOD and PATH, such as lastcall request GET healthz/ready; got %d arguments", len(args))
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
