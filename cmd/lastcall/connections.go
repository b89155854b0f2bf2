package main

import (
	"net/http"
	"time"

	"github.com/spf13/cobra"

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
