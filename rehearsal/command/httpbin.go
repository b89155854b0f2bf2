package command

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/rehearsal/httpbin"
)

// HTTPBin is the app of rehearsals.
func HTTPBin() *cobra.Command {
	var listen, onTerm string
	var maxDelay time.Duration
	cmd := &cobra.Command{
		Use:   "httpbin",
		Short: "An app with httpbin's paths, to try rollouts with",
		Long: `An app with the paths of go-httpbin: /delay/N, /status/N, /bytes/N, /stream/N, /drip, /get and others.

--on-term sets its behaviour at SIGTERM:
  exit            exits at once and drops requests in flight, as a program
                  without a signal handler does
  close-listener  closes its listening socket at once and finishes the requests
                  in flight, as nginx does
  drain           http.Server.Shutdown`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			behaviour := httpbin.OnTerm(onTerm)
			if maxDelay <= 0 {
				return cli.UsageError{Err: fmt.Errorf("--max-delay is %v: must be positive", maxDelay)}
			}
			ctx, stop := httpbin.NotifyContext(cmd.Context(), behaviour)
			defer stop()
			return httpbin.Run(ctx, httpbin.Options{
				Listen: listen, MaxDelay: maxDelay, OnTerm: behaviour,
				Log: slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)),
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&listen, "listen", "127.0.0.1:8080", "`address` to listen on, host:port")
	flags.DurationVar(&maxDelay, "max-delay", httpbin.DefaultMaxDelay,
		"longest time that an answer may take, as of /delay/N")
	behaviours := []string{string(httpbin.Exit), string(httpbin.CloseListener), string(httpbin.Drain)}
	cli.ChoiceFlag(flags, &onTerm, "on-term", behaviours[0], behaviours, "behaviour at SIGTERM")
	return cmd
}
