package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
	"github.com/lastcall-dev/lastcall/kube/cmd/internal/kubeconfig"
	"github.com/lastcall-dev/lastcall/kube/workload"
)

// clusterFlags locate a cluster and a namespace in it.
type clusterFlags struct{ kubeconfig, context, namespace string }

func (f *clusterFlags) register(flags *pflag.FlagSet, namespace string) {
	flags.StringVarP(&f.namespace, "namespace", "n", "", namespace)
	flags.StringVar(&f.kubeconfig, "kubeconfig", "",
		"`file` for the connection to the API server (default KUBECONFIG, or the pod's service account)")
	flags.StringVar(&f.context, "context", "", "`name` of a context of the kubeconfig (default the current one)")
}

// connect returns clients of the cluster.
func (f *clusterFlags) connect() (clients workload.Clients, err error) {
	config, err := kubeconfig.RESTConfig(f.kubeconfig, f.context)
	if err != nil {
		return clients, err
	}
	return workload.Connect(config)
}

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

// canAsk refuses --restart without --yes, unless a person can answer a question.
func canAsk(cmd *cobra.Command, yes bool) error {
	if file, isFile := cmd.InOrStdin().(*os.File); !yes && !(isFile && terminal.Is(file)) {
		return errors.New("--restart needs a confirmation, and standard input is not a terminal: add --yes")
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
