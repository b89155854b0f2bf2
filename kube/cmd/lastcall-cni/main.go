// Lastcall-cni is the network plugin (CNI) that captures the traffic of injected pods on a node, and its installer.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/kube/cni"
)

const help = `Capture the traffic of injected pods on a node, so that no container of theirs needs a capability
(docs/cni.md).

A container runtime calls this program as a network plugin (CNI): it is then configured by its environment and standard
input.

--install puts it in place on a node and keeps it there: it copies this program to the node's plugins, adds it to the
end of the chain in the node's network configuration, and does so again when another program replaces that. At SIGTERM
the plugin stays, unless the DaemonSet that this pod belongs to was deleted: then its entry is taken out of the
configuration, whose other settings stay.

--check reports by the exit code whether the plugin is installed. --remove takes its entry out by hand; the program
stays, because some runtimes call it when a pod ends that has started with it.`

// version is set by the build (-ldflags "-X main.version=…").
var version = ""

func main() {
	if cni.IsCalled() {
		cni.Main("lastcall-cni " + cli.Version(version) + " captures the traffic of pods; see lastcall-cni --help")
		return
	}
	os.Exit(cli.Main(command(), cli.Version(version)))
}

func command() *cobra.Command {
	var node cni.Node
	var daemonSet cni.DaemonSet
	var format string
	var isInstall, isCheck, isRemove bool
	cmd := &cobra.Command{
		Use:   "lastcall-cni {--install | --check | --remove}",
		Short: "Capture the traffic of injected pods on a node",
		Long:  help,
		Args:  cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case isInstall:
				log, _ := cli.Log(cmd, format, slog.LevelInfo)
				return install(node, daemonSet, log)
			case isCheck:
				return node.IsInstalled()
			case isRemove:
				return node.Remove()
			}
			return cmd.Help()
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&isInstall, "install", false, "install the plugin on this node, and keep it installed")
	flags.BoolVar(&isCheck, "check", false, "report whether the plugin is installed on this node, by the exit code")
	flags.BoolVar(&isRemove, "remove", false, "take the plugin out of this node's network configuration")
	cmd.MarkFlagsMutuallyExclusive("install", "check", "remove")
	flags.StringVar(&node.Programs, "bin-dir", "/opt/cni/bin", "`folder` with the node's network plugins")
	flags.StringVar(&node.Lists, "conf-dir", "/etc/cni/net.d", "`folder` with the node's network configuration")
	flags.StringVar(&node.List, "conf-file", "",
		"`name` of the configuration to change, which must end in .conflist "+
			"(default the one that the runtime uses: the first)")
	flags.StringVar(&daemonSet.Name, "daemonset", "",
		"with --install, the `name` of the DaemonSet of this pod, in its namespace: "+
			"its deletion removes the plugin (default: the plugin stays)")
	cli.LogFormatFlag(flags, &format)
	return cmd
}

func install(node cni.Node, daemonSet cni.DaemonSet, log *slog.Logger) error {
	path, err := os.Executable()
	if err != nil {
		return err
	}
	program, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read this program, in order to install it: %w", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	installer := cni.Installer{Node: node, Program: program, IsRemoved: daemonSet.IsRemoved, Log: log}
	if daemonSet.Name == "" {
		installer.IsRemoved = func(context.Context) (bool, error) { return false, nil }
	}
	return installer.Run(ctx)
}
