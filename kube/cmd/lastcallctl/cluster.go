package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
	"github.com/lastcall-dev/lastcall/kube/cmd/internal/kubeconfig"
	"github.com/lastcall-dev/lastcall/kube/rehearse/cluster"
	"github.com/lastcall-dev/lastcall/kube/workload"
	"github.com/lastcall-dev/lastcall/rehearsal/command"
)

// clusterFlags locate a cluster and a namespace in it.
type clusterFlags struct{ kubeconfig, context, namespace string }

func (f *clusterFlags) register(flags *pflag.FlagSet, namespace string) {
	flags.StringVarP(&f.namespace, "namespace", "n", "", namespace)
	flags.StringVar(&f.kubeconfig, "kubeconfig", "",
		"`file` for the connection to the API server (default KUBECONFIG, or the pod's service account)")
	flags.StringVar(&f.context, "context", "", "`name` of a context of the kubeconfig (default the current one)")
}

// connect returns clients of the cluster, whose API server is at host.
func (f *clusterFlags) connect() (clients workload.Clients, host string, err error) {
	config, err := kubeconfig.RESTConfig(f.kubeconfig, f.context)
	if err != nil {
		return clients, "", err
	}
	clients, err = workload.Connect(config)
	return clients, config.Host, err
}

const ofWorkload = "`namespace` of the workload (default that of the context)"

// workload is the one with this name in the namespace.
func (f *clusterFlags) workload(name string) (*workload.Workload, error) {
	if f.namespace == "" {
		f.namespace = kubeconfig.NamespaceOf(f.kubeconfig, f.context)
	}
	return workload.Parse(f.namespace, name)
}

// oneWorkload refuses all but one argument.
func oneWorkload(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return cli.UsageError{Err: errors.New("name one workload, such as deploy/web")}
	}
	return nil
}

// canAsk refuses a change that is not confirmed by --yes, unless a person can answer a question.
func canAsk(cmd *cobra.Command, yes bool, what string) error {
	if file, isFile := cmd.InOrStdin().(*os.File); !yes && !(isFile && terminal.Is(file)) {
		return fmt.Errorf("%s needs a confirmation, and standard input is not a terminal: add --yes", what)
	}
	return nil
}

// confirm asks a person, unless --yes has answered. Any answer but y or yes is an error, and so is the end of ctx.
func confirm(ctx context.Context, cmd *cobra.Command, yes bool, question string) error {
	if yes {
		return nil
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s [y/N] ", question)
	answer := make(chan string, 1)
	go func() { // ends with the program, as a read of a terminal cannot be cancelled
		text, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(text))
	}()
	select {
	case text := <-answer:
		if text != "y" && text != "yes" {
			return errors.New("no rollout: not confirmed")
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

const rehearseClusterHelp = `Rehearse a real rollout: clients on this machine send --request to --url while the pods of
a workload are restarted, and the API server reports how the pods end. It shows the plan and asks first.

The exit code is 1 if a request was lost or the rollout was not complete.`

// rehearseCluster rehearses a rollout of a workload in a cluster.
func rehearseCluster() *cobra.Command {
	var (
		o      cluster.Options
		from   clusterFlags
		site   string
		yes    bool
		output cli.Format
	)
	cmd := &cobra.Command{
		Use:   "cluster KIND/NAME",
		Short: "Show which requests a workload in your cluster loses in a rollout",
		Long:  rehearseClusterHelp,
		Example: `  lastcallctl rehearse cluster deploy/web -n shop \
    --url https://shop.example.com --request 'GET /'`,
		Args: oneWorkload,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			var errs []error
			if site == "" {
				err = errors.New("missing --url: the address of the service, as https://shop.example.com")
				errs = append(errs, err)
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
			return command.Measure(cmd, output, func(ctx context.Context) (command.Result, error) {
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
		"`URL` of the service as its clients reach it: http or https, "+
			"with the path that precedes those of the requests")
	command.LoadFlags(flags, &o.Options)
	flags.BoolVar(&o.Insecure, "insecure", false, "accept any certificate of --url")
	flags.DurationVar(&o.Limit, "limit", cluster.DefaultLimit, "how long the rollout may take")
	flags.BoolVarP(&yes, "yes", "y", false, "do not ask for the confirmation")
	from.register(flags, ofWorkload)
	cli.OutputFlag(flags, &output, "text, for people, or json")
	return cmd
}
