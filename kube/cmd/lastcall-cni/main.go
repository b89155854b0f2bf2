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
	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/kube/cni"
)

const help = `Capture the traffic of injected pods on a node, so that no container of theirs needs a capability (docs/cni.md).

A container runtime calls this program as a network plugin (CNI): it is then configured by its environment and standard input. The commands put it in place on a node, look whether it is there, and remove it.`

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
	cmd := &cobra.Command{
		Use:   "lastcall-cni",
		Short: "Capture the traffic of injected pods on a node",
		Long:  help,
		Args:  cli.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(installCommand(), checkCommand(), removeCommand())
	return cmd
}

func register(flags *pflag.FlagSet, n *cni.Node) {
	flags.StringVar(&n.Programs, "bin-dir", "/opt/cni/bin", "`folder` with the node's network plugins")
	flags.StringVar(&n.Lists, "conf-dir", "/etc/cni/net.d", "`folder` with the node's network configuration")
	flags.StringVar(&n.List, "conf-file", "", "`name` of the configuration to change, which must end in .conflist (default the one that the runtime uses: the first)")
}

func installCommand() *cobra.Command {
	var node cni.Node
	var daemonSet cni.DaemonSet
	var format string
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install the plugin on this node, and keep it installed",
		Long: `Install the plugin on this node, and keep it installed: copies this program to the node's plugins, adds it to the end of the chain in the node's network configuration, and does so again when another program replaces that.

At SIGTERM the plugin stays, unless the DaemonSet that this pod belongs to was deleted: then its entry is taken out of the configuration, whose other settings stay.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, _ := cli.Log(cmd, format, slog.LevelInfo)
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
		},
	}
	register(cmd.Flags(), &node)
	cmd.Flags().StringVar(&daemonSet.Name, "daemonset", "", "`name` of the DaemonSet of this pod, in its namespace: its deletion removes the plugin (default: the plugin stays)")
	cli.LogFormatFlag(cmd.Flags(), &format)
	return cmd
}

func checkCommand() *cobra.Command {
	var node cni.Node
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Report whether the plugin is installed on this node, by the exit code",
		Args:  cli.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return node.IsInstalled() },
	}
	register(cmd.Flags(), &node)
	return cmd
}

func removeCommand() *cobra.Command {
	var node cni.Node
	cmd := &cobra.Command{
		Use:   "remove",
		Short: "Take the plugin out of this node's network configuration",
		Long:  "Take the plugin out of this node's network configuration, whose other settings stay. The program stays, because some runtimes call it when a pod ends that has started with it.",
		Args:  cli.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return node.Remove() },
	}
	register(cmd.Flags(), &node)
	return cmd
}
