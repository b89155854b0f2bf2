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
