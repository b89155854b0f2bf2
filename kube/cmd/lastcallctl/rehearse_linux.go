package main

import (
	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/kube/rehearse"
	"github.com/lastcall-dev/lastcall/rehearsal/command"
)

func rehearseCommand() *cobra.Command {
	return command.Rehearse(command.Service(rehearse.Manifest), rehearseCluster())
}
