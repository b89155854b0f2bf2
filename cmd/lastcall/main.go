// Lastcall lets a pod, or any service, finish its connections before it stops. It runs beside the app (lastcall agent), around it (lastcall run, which
// lastcall hot-restart replaces), and as its preStop hook (lastcall wait).
//
// Everything it goes by is read from Istio's ProxyConfig and from these
// variables, which stand in the container's environment or in proxyMetadata;
// `lastcall config` prints the result and where each value came from:
//
//	EXIT_ON_ZERO_ACTIVE_CONNECTIONS   true: leave when nothing is busy any more. false: wait terminationDrainDuration, then end
//	MINIMUM_DRAIN_DURATION            5s    how long new connections are awaited at least
//	TERMINATION_GRACE_PERIOD_SECONDS  30    the pod's terminationGracePeriodSeconds
//	LASTCALL_QUIET_TIME               2s    how long nobody may have come before the drain ends
//	LASTCALL_IDLE_GRACE               2s    how long a kept-alive connection may be idle before it is closed
//	LASTCALL_LAST_CALL_MARGIN         2s    how long before SIGKILL what is left is ended in an orderly way
//	LASTCALL_RESTART_WAIT             10s   how long a connection waits for an app container that is restarted, before its client gets a 503
//	LASTCALL_LAST_CALL_SPREAD         0s    over how much of the last call endings are spread; 0s: half of what there is
//	LASTCALL_WEBSOCKET                wait  close: WebSockets get their close frame when the drain has waited for new connections
//	LASTCALL_WEBSOCKET_CLOSE          1001  the status of our close frames, 1001 or 1012
//	LASTCALL_EVENT_STREAMS            wait  close: the same for event streams that answer a GET
//	LASTCALL_ENDLESS_TYPES                  media types of lines without an end: they end as event streams do, if they answer a GET
//	LASTCALL_COMPAT                         istio: Istio's own behaviour and defaults
//	LASTCALL_HOOK_TOKEN                     opens GET :15020/wait/TOKEN, the preStop hook of app containers by httpGet
//	LASTCALL_SIDECAR_TOKEN                  the same for the sidecar's own preStop hook, which says that the pod ends
//	LASTCALL_APP_CONTAINERS           1     how many app containers the pod has: beside a classic sidecar each leaves a process that ends with it
//	ISTIO_KUBE_APP_PROBERS                  the app's probes that are answered on the status port, as Istio's injector writes them
//	PROXY_CONFIG                            Istio's ProxyConfig, as its injector writes it
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/internal/cli"
	"github.com/lastcall-dev/lastcall/internal/hotrestart"
	"github.com/lastcall-dev/lastcall/internal/logs"
)

// version is set by the build (-ldflags "-X main.version=…").
var version = ""

// Exit codes beside the agent's own.
const codeUsage = 2

// exit is an error that has been told already.
type exit struct{ code int }

func (e exit) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// usage is an error in flags or arguments.
type usage struct{ error }

func (u usage) Unwrap() error { return u.error }

func main() {
	// A sidecar stands beside every app: its memory counts more than the time
	// that its small heap takes to sweep (17.8 MB resident after scrapes, 15.5 so).
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
	os.Exit(run())
}

func run() int {
	stderr := logs.New(os.Stderr, logs.DefaultBound)
	defer stderr.Close()
	cmd := command()
	cmd.SetErr(stderr)
	err := cmd.Execute()
	if err != nil {
		hotrestart.Explain(err)
	}
	var e exit
	var u usage
	var c cli.UsageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return e.code
	case errors.As(err, &u), errors.As(err, &c):
		fmt.Fprintf(stderr, "lastcall: %v\nSee lastcall --help.\n", err)
		return codeUsage
	}
	fmt.Fprintf(stderr, "lastcall: %v\n", err)
	return 1
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:   "lastcall",
		Short: "Finish a service's connections before it stops",
		Args:  cli.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(agentCommand(), runCommand(), hotRestartCommand(), captureCommand(), copyCommand(), waitCommand(), presentCommand(), readyCommand(), connectionsCommand(), requestCommand(), configCommand(), versionCommand())
	cli.Prepare(root, buildVersion())
	return root
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cli.NoArgs,
		Run:   func(cmd *cobra.Command, _ []string) { fmt.Fprintln(cmd.OutOrStdout(), buildVersion()) },
	}
}

func buildVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
