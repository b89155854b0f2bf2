//go:build !linux

package command

import (
	"errors"

	"github.com/spf13/cobra"
)

const needsLinux = `rehearse needs Linux: it runs pods as real processes and reads their sockets from the kernel.
Run it in a container, from the source tree:

  docker run --rm -it -v "$PWD:/src" -w /src golang:1.26 make rehearse`

// Rehearse fails on other systems than Linux, with a command that runs it in a container.
func Rehearse() *cobra.Command {
	return &cobra.Command{
		Use:                "rehearse",
		Short:              rehearseShort + " (needs Linux)",
		Long:               needsLinux,
		DisableFlagParsing: true,
		RunE:               func(*cobra.Command, []string) error { return errors.New(needsLinux) },
	}
}
