//go:build !linux

package command

import (
	"errors"

	"github.com/spf13/cobra"
)

// Gateway is a part of a rehearsal, which needs Linux.
func Gateway() *cobra.Command {
	return &cobra.Command{Use: "static-gateway", Hidden: true, RunE: func(*cobra.Command, []string) error { return errors.New(needsLinux) }}
}
