package main

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/internal/cli"
)

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
			for {
				resp, body, err := f.ask(ctx, http.MethodGet, "healthz/ready")
				if err == nil && resp.StatusCode == http.StatusOK {
					return nil
				}
				if err == nil {
					err = fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(body)))
				}
				select {
				case <-time.After(20 * time.Millisecond):
				case <-ctx.Done():
					return fmt.Errorf("the agent is not ready after %v: %w", f.timeout, err)
				}
			}
		},
	}
	f.register(cmd.Flags(), time.Minute)
	return cmd
}
