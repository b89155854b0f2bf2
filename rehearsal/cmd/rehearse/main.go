// Rehearse runs the published experiment (docs/how.md) on this machine (make rehearse). It is lastcallctl's command of
// that name alone: without Kubernetes' clients it compiles in seconds.
package main

import (
	"os"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/rehearsal/command"
)

// version is set by the build (-ldflags "-X main.version=…").
var version = ""

func main() {
	root := command.Rehearse(nil)
	root.AddCommand(command.HTTPBin())
	os.Exit(cli.Main(root, cli.Version(version)))
}
