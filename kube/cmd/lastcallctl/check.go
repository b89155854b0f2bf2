package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
	"github.com/lastcall-dev/lastcall/kube/check"
	"github.com/lastcall-dev/lastcall/kube/cmd/internal/kubeconfig"
)

const checkHelp = `Look a cluster over: the API server and its version, nodes and their kernels, the webhook with its certificate, endpoints and failure policy, the injected pods with their versions and timers, and other meshes. The command changes nothing. It tries the webhook with a pod that is created as a server-side dry run.

With --pre it checks, before an installation, whether the cluster and your permissions suffice.

What you may not read is a warning and not an error.

Exit code: 0 without errors (there may be warnings), 1 with errors, 2 for wrong flags.`

// clusterFlags locate a cluster and lastcall in it.
type clusterFlags struct {
	kubeconfig, context, system, name, namespace string
	timeout                                      time.Duration
}

func (f *clusterFlags) register(flags *pflag.FlagSet) {
	f.registerServer(flags)
	flags.StringVar(&f.system, "system-namespace", "lastcall-system", "`namespace` of lastcall's controller")
	flags.StringVar(&f.name, "name", "lastcall-webhook", "`name` of the controller's Deployment, Service and webhook configurations")
	flags.StringVarP(&f.namespace, "namespace", "n", "", "look at the pods of this `namespace` only (default all)")
}

// registerServer adds the flags that locate the cluster.
func (f *clusterFlags) registerServer(flags *pflag.FlagSet) {
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "`file` for the connection to the API server (default KUBECONFIG, or the pod's service account)")
	flags.StringVar(&f.context, "context", "", "`name` of a context of the kubeconfig (default the current one)")
	flags.DurationVar(&f.timeout, "timeout", 10*time.Second, "time limit for each look-up")
}

func (f *clusterFlags) connect() (c check.Clients, config *rest.Config, err error) {
	if f.timeout <= 0 {
		return c, nil, cli.UsageError{Err: fmt.Errorf("--timeout %v: must be positive", f.timeout)}
	}
	if config, err = kubeconfig.RESTConfigOf(f.kubeconfig, f.context); err != nil {
		return c, nil, cli.UsageError{Err: fmt.Errorf("connect to the API server: %w", err)}
	}
	c, err = check.Connect(config, f.timeout)
	return c, config, err
}

func (f *clusterFlags) options() check.Options {
	o := check.Options{Namespace: f.system, Name: f.name, Pods: f.namespace, Timeout: f.timeout, Now: time.Now()}
	if released := cli.Version(version); !strings.HasPrefix(released, "(") { // (devel) has no images
		o.Version = released
	}
	return o
}

func checkCommand() *cobra.Command {
	var f clusterFlags
	var output cli.Format
	var pre bool
	cmd := &cobra.Command{
		Use:     "check",
		Short:   "Check a cluster: webhook, certificates, nodes, injected pods",
		Long:    checkHelp,
		Example: "  lastcallctl check --pre\n  lastcallctl check\n  lastcallctl check -n shop -o json",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			clients, _, err := f.connect()
			if err != nil {
				return err
			}
			ctx, stop := cli.SignalContext(cmd.Context())
			defer stop()
			o := f.options()
			o.Pre = pre
			result := check.Run(ctx, clients, o)
			if err := ctx.Err(); err != nil {
				return err
			}
			if output == cli.JSON {
				err = result.WriteJSON(cmd.OutOrStdout())
			} else {
				err = result.WriteText(cmd.OutOrStdout(), styleOf(os.Stdout))
			}
			if err == nil && result.Status() == check.Failed {
				err = cli.ErrReported
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&pre, "pre", false, "check before an installation")
	f.register(cmd.Flags())
	cli.OutputFlag(cmd.Flags(), &output, "output format")
	return cmd
}

// styleOf is the style for a terminal, or plain ASCII for files, dumb terminals and locales without UTF-8. NO_COLOR
// turns colours off (no-color.org).
func styleOf(f *os.File) check.Style {
	if !terminal.Is(f) || os.Getenv("TERM") == "dumb" {
		return check.Style{}
	}
	locale := os.Getenv("LC_ALL")
	for _, name := range []string{"LC_CTYPE", "LANG"} {
		if locale == "" {
			locale = os.Getenv(name)
		}
	}
	locale = strings.ToUpper(strings.ReplaceAll(locale, "-", ""))
	return check.Style{Unicode: strings.Contains(locale, "UTF8"), Colour: os.Getenv("NO_COLOR") == ""}
}
