// Lastcall lets a pod, or any service, finish its connections before it stops. It runs next to the app (lastcall
// agent), around it (lastcall run), and as its preStop hook (lastcall wait).
//
// Its configuration is Istio's ProxyConfig, environment variables and flags. meshconfig.Table lists them all;
// lastcall agent --help and docs/configuration.md print that table, and lastcall config the values in force and where
// each comes from.
package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/internal/sidecar/capture"
	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
)

// version is set by the build (-ldflags "-X main.version=…").
var version = ""

// usage is an error in flags or arguments.
func usage(err error) error { return cli.UsageError{Err: err} }

func usagef(format string, args ...any) error { return usage(fmt.Errorf(format, args...)) }

// init locks main to the process's first thread for lastcall capture, which becomes another program: when another
// thread does, the first one is a zombie for a moment, and a container runtime refuses to start a hook in what it takes
// for a stopped container.
func init() {
	if len(os.Args) > 1 && os.Args[1] == "capture" {
		runtime.LockOSThread()
	}
}

func main() {
	// Every app has a sidecar: its memory matters more than the time to collect its small heap (15.5 MB resident
	// after scrapes instead of 17.8).
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
	if len(os.Args) < 2 || os.Args[1] != "capture" {
		capture.GiveUpUnused()
	}
	os.Exit(cli.Main(invoked(os.Args[1:]), cli.Version(version)))
}

// invoked is the command line with the commands that args need. At the start of a sidecar that is one: building all of
// them allocates 131 kB instead of 39 kB, and costs one more garbage collection.
func invoked(args []string) *cobra.Command {
	only := map[string]func() *cobra.Command{"agent": agentCommand, "capture": captureCommand}
	if len(args) == 0 || only[args[0]] == nil {
		return command()
	}
	root := rootCommand()
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(only[args[0]]())
	return root
}

func rootCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "lastcall",
		Short: "Finish a service's connections before it stops",
		Long:  "lastcall lets a pod finish its conversations before it stops: no reset, no 503, no truncated body, no time wasted.",
		Args:  cli.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
}

func command() *cobra.Command {
	root := rootCommand()
	cli.AddGroup(root, "Serve:", agentCommand(), runCommand())
	cli.AddGroup(root, "Hooks and init containers:", waitCommand(), readyCommand(), captureCommand(), copyCommand(),
		presentCommand())
	cli.AddGroup(root, "Inspect:", connectionsCommand(), observeCommand(), configCommand(), requestCommand())
	return root
}
