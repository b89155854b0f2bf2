//go:build !linux

package command

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
)

const needsLinux = `Without --cluster, rehearse needs Linux: it runs pods as real processes and reads their sockets from the kernel.
Run it in a container, from the source tree:

  docker run --rm -it -v "$PWD:/src" -w /src golang:1.26 make rehearse`

func usage(err error) error { return err }

// Rehearse is the command that rehearses a rollout in the clusters. On other systems than Linux everything else fails, with
// a command that runs it in a container.
func Rehearse(clusters ...Cluster) *cobra.Command {
	var (
		output  cli.Format
		load    loadFlags
		cluster clusterFlags
	)
	cmd := &cobra.Command{
		Use:   "rehearse",
		Short: rehearseShort + " (without --cluster: needs Linux)",
		Long:  needsLinux,
		Args:  cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cluster.check(cmd.Flags()); err != nil {
				return err
			}
			if !cluster.isSet {
				return errors.New(needsLinux)
			}
			return cluster.run(cmd, output, &load)
		},
	}
	if len(clusters) == 0 {
		return cmd
	}
	cluster.Cluster = clusters[0]
	cmd.Long = clusterHelp + "\n\n" + needsLinux
	cluster.register(cmd.Flags())
	load.register(cmd.Flags())
	cli.OutputFlag(cmd.Flags(), &output, "text, for people, or json")
	return cmd
}
