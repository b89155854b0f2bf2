package main

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/internal/poll"
	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
)

const connectionsHelp = `List the clients' connections, the oldest first: the client, its protocol, whether the connection is busy, and its open requests. The command asks the agent on its status port; GET /connections on the admin port returns the same.

States: busy, idle, quiet (a probe's request, which does not hold the drain), handshake (TLS), closing (closed by lastcall, not yet by the client). TLS "passed" is terminated by the app. RECEIVED and SENT are bytes on the wire.`

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
			return f.show(cmd, http.MethodGet, "connections?format="+string(output))
		},
	}
	f.register(cmd.Flags(), 10*time.Second)
	cli.OutputFlag(cmd.Flags(), &output, "output format")
	return cmd
}

const readyHelp = `Return when the agent serves and, with lastcall run, the app accepts connections on each of its ports.

Made for the postStart hook of a sidecar that starts before the app (holdApplicationUntilProxyStarts), as pilot-agent wait: the kubelet starts the next container only when the hook has returned.`

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
