package command

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/internal/cli"
	"github.com/lastcall-dev/lastcall/rehearsal/httpbin"
)

// HTTPBin is the app of rehearsals.
func HTTPBin() *cobra.Command {
	var listen, onTerm string
	var maxDelay time.Duration
	cmd := &cobra.Command{
		Use:   "httpbin",
		Short: "A small app with httpbin's paths, which ends in one of three ways",
		Long: `A small app with httpbin's paths: /delay/N, /status/N, /bytes/N, /stream/N,
/drip, /get, /headers.

--on-term says what it does at SIGTERM:
  exit            dies of it with whatever is in flight, as a program without a handler does
  close-listener  closes its listening socket at once, finishes what is in flight, leaves (nginx)
  drain           http.Server.Shutdown`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			way, err := httpbin.ParseOnTerm(onTerm)
			if err != nil {
				return cli.UsageError{Err: fmt.Errorf("--on-term: %w", err)}
			}
			if maxDelay <= 0 {
				return cli.UsageError{Err: fmt.Errorf("--max-delay is %v: must be positive", maxDelay)}
			}
			ctx, stop := httpbin.NotifyContext(cmd.Context(), way)
			defer stop()
			return httpbin.Run(ctx, httpbin.Options{
				Listen: listen, MaxDelay: maxDelay, OnTerm: way,
				Log: slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)),
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&listen, "listen", "127.0.0.1:8080", "`address` to listen on, host:port")
	flags.DurationVar(&maxDelay, "max-delay", httpbin.DefaultMaxDelay, "the longest that /delay/N waits")
	flags.StringVar(&onTerm, "on-term", string(httpbin.Exit), "at SIGTERM: exit, close-listener or drain")
	return cmd
}
