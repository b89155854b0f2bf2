//go:build !linux

package command

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
)

const needsLinux = `A rehearsal on this machine needs Linux: it reads the sockets of processes from the kernel.
Run it in a container, from the source tree:

  docker run --rm -it -v "$PWD:/src" -w /src golang:1.26 make rehearse`

// ReadManifest is unused.
type ReadManifest func()

// Rehearse is the command that runs the experiment. More are those of other rehearsals. On other systems than Linux it
// fails, with a command that runs it in a container.
func Rehearse(_ ReadManifest, more ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rehearse",
		Short: rehearseShort + " (needs Linux)",
		Long:  needsLinux,
		Args:  cli.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return errors.New(needsLinux) },
	}
	cmd.AddCommand(more...)
	return cmd
}
