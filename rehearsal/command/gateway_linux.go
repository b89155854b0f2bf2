package command

import (
	"context"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/gateway"
	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/internal/sidecar/logs"
	"github.com/lastcall-dev/lastcall/internal/sidecar/signals"
)

// Gateway is the gateway of a rehearsal: lastcall-gateway without Kubernetes, so that its clients need not be compiled
// for a rehearsal. Rehearsals start it; it is hidden from people.
func Gateway() *cobra.Command {
	var o gateway.RunOptions
	var endpoints, accessLog string
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
			access := logs.New(to, logs.DefaultBound)
			defer access.Close()
			g, err := gateway.New(gateway.Options{Log: log, AccessLog: access, MaxPerEndpoint: gateway.DefaultMaxPerEndpoint})
			if err != nil {
				return err
			}
			if o.Source, err = gateway.FollowFile(g, endpoints, gateway.HTTP1); err != nil {
				return err
			}
			preset, err := gateway.PresetNamed("none", 0)
			if err != nil {
				return err
			}
			o.Termination = preset.Termination(drain.DefaultGracePeriod)
			received, stop := signals.Receive(signals.Options{Log: log})
			defer stop()
			o.Signals = received.Stop
			_, err = g.Run(context.WithoutCancel(cmd.Context()), o)
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.HTTP, "http", "127.0.0.1:8000", "`address` for HTTP, host:port")
	flags.StringVar(&endpoints, "endpoints", "", "`file` with one host:port on each line; watched")
	flags.StringVar(&accessLog, "access-log", "", "`file` for one line per request")
	return cmd
}
