package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
	"github.com/lastcall-dev/lastcall/kube/cmd/internal/kubeconfig"
	"github.com/lastcall-dev/lastcall/kube/workload"
)

// clusterFlags locate a cluster and a namespace in it.
type clusterFlags struct{ kubeconfig, context, namespace string }

func (f *clusterFlags) register(flags *pflag.FlagSet, namespace string) {
	flags.StringVarP(&f.namespace, "namespace", "n", "", namespace)
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "`file` for the connection to the API server (default KUBECONFIG, or the pod's service account)")
	flags.StringVar(&f.context, "context", "", "`name` of a context of the kubeconfig (default the current one)")
}

func (f *clusterFlags) config() (*rest.Config, error) {
	config, err := kubeconfig.RESTConfig(f.kubeconfig, f.context)
	if err != nil {
		return nil, cli.UsageError{Err: fmt.Errorf("connect to the API server: %w", err)}
	}
	return config, nil
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

// ask asks a person; any answer but y or yes means no. The end of ctx ends the wait for the answer.
func ask(ctx context.Context, in io.Reader, out io.Writer, question string) (bool, error) {
	fmt.Fprintf(out, "%s [y/N] ", question)
	answer := make(chan string, 1)
	go func() { // ends with the program, as a read of a terminal cannot be cancelled
		text, _ := bufio.NewReader(in).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(text))
	}()
	select {
	case text := <-answer:
		return text == "y" || text == "yes", nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}
