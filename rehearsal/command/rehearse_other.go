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

// Rehearse is the command that runs the experiment. On other systems than Linux it fails, with a command that runs it
// in a container.
func Rehearse(ReadManifest) *cobra.Command {
	return &cobra.Command{
		Use:   "rehearse",
		Short: "Show what a client gets under each way of stopping a pod (needs Linux)",
		Long:  needsLinux,
		Args:  cli.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return errors.New(needsLinux) },
	}
}
