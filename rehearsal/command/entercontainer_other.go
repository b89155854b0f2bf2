//go:build !linux

package command

import "github.com/spf13/cobra"

// EnterContainer needs Linux.
func EnterContainer() *cobra.Command { return &cobra.Command{Use: "enter-container", Hidden: true} }
