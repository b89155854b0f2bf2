package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/rehearsal/outcome"
)

const clusterHelp = `With --cluster it rehearses a real rollout: clients on this machine send --request to --url while the pods of --deployment are restarted, and the API server reports what happens to each pod and endpoint. It shows the plan and asks first.`

// Cluster is a rehearsal in a cluster. The zero value: there is none.
type Cluster struct {
	Register func(flags *pflag.FlagSet) // adds flags
	// Run returns a cli.UsageError for wrong flags.
	Run func(ctx context.Context, cmd *cobra.Command, l Load) (*outcome.Result, error)
}

// clusterFlags are --cluster and the Cluster's own.
type clusterFlags struct {
	Cluster
	isSet bool
	names []string // of the Cluster's flags
}

func (f *clusterFlags) register(flags *pflag.FlagSet) {
	flags.BoolVar(&f.isSet, "cluster", false, "replace the pods of a real cluster, after a confirmation")
	own := pflag.NewFlagSet("cluster", pflag.ContinueOnError)
	own.SortFlags = false
	f.Register(own)
	own.VisitAll(func(one *pflag.Flag) { f.names = append(f.names, one.Name) })
	flags.AddFlagSet(own)
}

// check returns an error for a flag that needs --cluster.
func (f *clusterFlags) check(flags *pflag.FlagSet) error {
	for _, name := range f.names {
		if flags.Changed(name) && !f.isSet {
			return cli.UsageError{Err: fmt.Errorf("--%s needs --cluster", name)}
		}
	}
	return nil
}

func (f *clusterFlags) run(cmd *cobra.Command, output cli.Format, l *loadFlags) error {
	parsed, err := l.parse()
	if err != nil {
		return cli.UsageError{Err: err}
	}
	return measure(cmd, output, func(ctx context.Context, _ string) (*outcome.Result, error) { return f.Run(ctx, cmd, parsed) })
}
