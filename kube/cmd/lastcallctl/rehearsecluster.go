package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
	"github.com/lastcall-dev/lastcall/kube/cmd/internal/kubeconfig"
	"github.com/lastcall-dev/lastcall/kube/rehearse/cluster"
	"github.com/lastcall-dev/lastcall/kube/workload"
	"github.com/lastcall-dev/lastcall/rehearsal/command"
	"github.com/lastcall-dev/lastcall/rehearsal/outcome"
)

// rehearsalFlags are those of rehearse --cluster.
type rehearsalFlags struct {
	kubeconfig, context     string
	deployment, statefulset string
	url                     string
	scale                   int32
	deletePod               bool
	yes, insecure           bool
	protect                 []string
	limit                   time.Duration
}

// clusterRehearsal rehearses the rollout of a workload in a cluster.
func clusterRehearsal() command.Cluster {
	f := &rehearsalFlags{}
	return command.Cluster{Register: f.register, Run: f.run}
}

// unscaled is the default of --scale.
const unscaled = -1

func (f *rehearsalFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.deployment, "deployment", "", "`NAMESPACE/NAME` of the Deployment whose pods are replaced")
	flags.StringVar(&f.statefulset, "statefulset", "", "`NAMESPACE/NAME` of a StatefulSet in place of a Deployment")
	flags.StringVar(&f.url, "url", "", "`URL` of the service as its clients reach it: http or https, with the path that precedes those of the requests")
	flags.Int32Var(&f.scale, "scale", unscaled, "scale to this `number` of replicas and back, in place of a restart")
	flags.Lookup("scale").DefValue = ""
	flags.BoolVar(&f.deletePod, "delete-pod", false, "delete one pod, in place of a restart")
	flags.StringSliceVar(&f.protect, "protect", nil, "`namespaces` that are never touched, in addition to Kubernetes' own")
	flags.DurationVar(&f.limit, "limit", cluster.DefaultLimit, "how long the rollout may take")
	flags.BoolVar(&f.insecure, "insecure", false, "accept any certificate of --url")
	flags.BoolVarP(&f.yes, "yes", "y", false, "do not ask for the confirmation")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "`file` for the connection to the API server (default KUBECONFIG, or the pod's service account)")
	flags.StringVar(&f.context, "context", "", "`name` of a context of the kubeconfig (default the current one)")
}

// options parses the flags.
func (f *rehearsalFlags) options(cmd *cobra.Command, l command.Load) (o cluster.Options, err error) {
	var errs []error
	bad := func(err error) { errs = append(errs, err) }
	kind, name := "deployment", f.deployment
	switch {
	case f.deployment != "" && f.statefulset != "":
		bad(errors.New("--deployment and --statefulset: use only one"))
	case f.statefulset != "":
		kind, name = "statefulset", f.statefulset
	}
	namespace, name, isBoth := strings.Cut(name, "/")
	if !isBoth || namespace == "" {
		bad(errors.New("missing --deployment NAMESPACE/NAME: the workload whose pods are replaced"))
	} else if o.Workload, err = workload.Parse(namespace, kind+"/"+name); err != nil {
		bad(fmt.Errorf("--%s: %w", kind, err))
	}
	if f.url == "" {
		bad(errors.New("missing --url: the address of the service, as https://shop.example.com"))
	} else if o.URL, err = url.Parse(f.url); err != nil {
		bad(fmt.Errorf("--url: %w", err))
	}
	o.How = cluster.Restart
	switch isScaled := cmd.Flags().Changed("scale"); {
	case isScaled && f.deletePod:
		bad(errors.New("--scale and --delete-pod: use only one"))
	case isScaled:
		o.How, o.Replicas = cluster.Scale, f.scale
	case f.deletePod:
		o.How = cluster.DeletePod
	}
	if file, isFile := cmd.InOrStdin().(*os.File); !f.yes && !(isFile && terminal.Is(file)) {
		bad(errors.New("--cluster needs a confirmation, and standard input is not a terminal: add --yes"))
	}
	o.Requests, o.Rate, o.Timeout, o.Limit, o.Protect, o.Insecure, o.Descriptors = l.Requests, l.Rate, l.Timeout, f.limit, f.protect, f.insecure, l.Descriptors
	return o, errors.Join(errs...)
}

func (f *rehearsalFlags) run(ctx context.Context, cmd *cobra.Command, l command.Load) (*outcome.Result, error) {
	o, err := f.options(cmd, l)
	if err != nil {
		return nil, cli.UsageError{Err: err}
	}
	config, err := kubeconfig.RESTConfigOf(f.kubeconfig, f.context)
	if err != nil {
		return nil, cli.UsageError{Err: fmt.Errorf("connect to the API server: %w", err)}
	}
	clients, err := cluster.Connect(config)
	if err != nil {
		return nil, err
	}
	messages := cmd.ErrOrStderr()
	began := time.Time{}
	o.Note = func(text string) {
		if began.IsZero() {
			began = time.Now()
		}
		fmt.Fprintf(messages, "%5.1f s  %s\n", time.Since(began).Seconds(), text)
	}
	o.Confirm = func(plan []string) (bool, error) { return f.confirm(ctx, cmd.InOrStdin(), messages, config.Host, plan) }
	r, err := cluster.Run(ctx, clients, o)
	if option := (cluster.OptionError{}); errors.As(err, &option) {
		err = cli.UsageError{Err: err}
	}
	return r, err
}

// confirm shows the plan and, without --yes, asks.
func (f *rehearsalFlags) confirm(ctx context.Context, in io.Reader, out io.Writer, host string, plan []string) (bool, error) {
	fmt.Fprintf(out, "On the cluster at %s, this rehearsal will\n", host)
	for _, line := range plan {
		fmt.Fprintln(out, cli.Wrap("  - "+line, 80))
	}
	if f.yes {
		return true, nil
	}
	return ask(ctx, in, out, "Continue?")
}
