package command

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall"
	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/internal/sidecar/logs"
	"github.com/lastcall-dev/lastcall/rehearsal/gateway"
)

// Gateway is the gateway of a rehearsal. Rehearsals start it; it is hidden from people.
func Gateway() *cobra.Command {
	var address, endpoints, accessLog string
	cmd := &cobra.Command{
		Use:    "static-gateway",
		Short:  "The gateway of rehearsals, with a file of endpoints",
		Args:   cli.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, _ := cli.Log(cmd, "text", slog.LevelInfo)
			to, err := logs.OpenFile(accessLog)
			if err != nil {
				return err
			}
			access := accesslog.New(to, accesslog.Text)
			defer access.Close()
			g := gateway.New(log, access)
			stop, err := g.Follow(endpoints)
			if err != nil {
				return err
			}
			defer stop()
			// There is no load balancer in front of it, which would still send to it.
			_, err = lastcall.Serve(context.WithoutCancel(cmd.Context()), &http.Server{Addr: address, Handler: g},
				lastcall.WithMinimumDrain(0), lastcall.WithQuietTime(0), lastcall.WithIdleGrace(0), lastcall.WithLogger(log))
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&address, "http", "127.0.0.1:8000", "`address` for HTTP, host:port")
	flags.StringVar(&endpoints, "endpoints", "", "`file` with one host:port on each line; watched")
	flags.StringVar(&accessLog, "access-log", "", "`file` for one line per request")
	return cmd
}
