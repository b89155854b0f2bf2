package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
	"github.com/lastcall-dev/lastcall/kube/rehearse/cluster"
	"github.com/lastcall-dev/lastcall/rehearsal/command"
	"github.com/lastcall-dev/lastcall/rehearsal/outcome"
)

const rehearseClusterHelp = `Rehearse a real rollout: clients on this machine send --request to --url while the pods of
a workload are restarted, and the API server reports how the pods end. It shows the plan and asks first.

The exit code is 1 if a request was lost or the rollout was not complete.`

// rehearseCluster rehearses a rollout of a workload in a cluster.
func rehearseCluster() *cobra.Command {
	var (
		o      cluster.Options
		load   command.LoadFlags
		from   clusterFlags
		site   string
		yes    bool
		output cli.Format
	)
	cmd := &cobra.Command{
		Use:     "cluster KIND/NAME",
		Short:   "Show which requests a workload in your cluster loses in a rollout",
		Long:    rehearseClusterHelp,
		Example: "  lastcallctl rehearse cluster deploy/web -n shop \\\n    --url https://shop.example.com --request 'GET /'",
		Args:    oneWorkload,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			errs := []error{load.Parse()}
			if site == "" {
				errs = append(errs, errors.New("missing --url: the address of the service, as https://shop.example.com"))
			} else if o.URL, err = url.Parse(site); err != nil {
				errs = append(errs, fmt.Errorf("--url: %w", err))
			}
			errs = append(errs, canAsk(cmd, yes, "a rollout"))
			o.Workload, err = from.workload(args[0])
			if err := errors.Join(append(errs, err)...); err != nil {
				return cli.UsageError{Err: err}
			}
			clients, host, err := from.connect()
			if err != nil {
				return err
			}
			o.Options = load.Options
			return command.Measure(cmd, output, func(ctx context.Context, _ string) (*outcome.Result, error) {
				o.Confirm = func(plan []string) error {
					messages := cmd.ErrOrStderr()
					fmt.Fprintf(messages, "On the cluster at %s, this rehearsal will\n", host)
					for _, line := range plan {
						fmt.Fprintln(messages, terminal.Wrap("  - "+line, 80))
					}
					return confirm(ctx, cmd, yes, "Continue?")
				}
				return cluster.Run(ctx, clients, o)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&site, "url", "",
		"`URL` of the service as its clients reach it: http or https, with the path that precedes those of the requests")
	load.Register(flags)
	flags.BoolVar(&o.Insecure, "insecure", false, "accept any certificate of --url")
	flags.DurationVar(&o.Limit, "limit", cluster.DefaultLimit, "how long the rollout may take")
	flags.BoolVarP(&yes, "yes", "y", false, "do not ask for the confirmation")
	from.register(flags, ofWorkload)
	cli.OutputFlag(flags, &output, "text, for people, or json")
	return cmd
}
