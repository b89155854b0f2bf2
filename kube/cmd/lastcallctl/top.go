package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/internal/cli"
	"github.com/lastcall-dev/lastcall/internal/terminal"
	"github.com/lastcall-dev/lastcall/kube/top"
)

const topHelp = `Watch the pods of a workload drain: the phase of each, the time until its last call and until SIGKILL, its busy and idle connections, and the requests that delay its exit. NAME is a pod, a Deployment, a StatefulSet or a DaemonSet; without one all injected pods are shown, the first 50.

The command only reads. It needs the permissions to get and list pods (and the workload), and to create pods/portforward: it reads each agent's state through the API server, as kubectl port-forward does.

Keys: up and down (or k and j) choose the pod whose connections are listed; q, Esc or Ctrl-C quits.

With --once, or if the output is not a terminal, the present state is printed once.

Exit code: 0, 1 if the pods cannot be found, 2 for wrong flags.`

func topCommand() *cobra.Command {
	var f clusterFlags
	var output cli.Format
	var once bool
	cmd := &cobra.Command{
		Use:     "top [[NAMESPACE/]NAME]",
		Short:   "Watch the pods of a workload drain",
		Long:    topHelp,
		Example: "  lastcallctl top shop/web\n  lastcallctl top -n shop\n  lastcallctl top shop/web --once -o json",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return cli.UsageError{Err: fmt.Errorf("top takes one NAMESPACE/NAME, got %d arguments", len(args))}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			target, title, err := f.target(args)
			if err != nil {
				return err
			}
			clients, config, err := f.connect()
			if err != nil {
				return err
			}
			ctx, stop := cli.SignalContext(cmd.Context())
			defer stop()
			board := top.NewBoard(clients, target, f.timeout, top.Forward(config, clients.Core))
			if output == cli.JSON || !terminal.Is(os.Stdout) || !terminal.Is(os.Stdin) {
				once = true
			}
			return showTop(ctx, cmd, board, title, once, output)
		},
	}
	f.registerServer(cmd.Flags())
	cmd.Flags().StringVarP(&f.namespace, "namespace", "n", "", "`namespace` of NAME (default \"default\"); without NAME, of the pods (default all)")
	cmd.Flags().BoolVar(&once, "once", false, "print the present state and end")
	cli.OutputFlag(cmd.Flags(), &output, "output format; json implies --once")
	return cmd
}

// target is what the arguments name, and a title for it.
func (f *clusterFlags) target(args []string) (t top.Target, title string, err error) {
	t.Namespace = f.namespace
	if len(args) == 0 {
		if t.Namespace == "" {
			return t, "all injected pods", nil
		}
		return t, "injected pods of " + t.Namespace, nil
	}
	namespace, name, isBoth := strings.Cut(args[0], "/")
	switch {
	case !isBoth:
		namespace, name = f.namespace, args[0]
	case f.namespace != "" && f.namespace != namespace:
		return t, "", cli.UsageError{Err: fmt.Errorf("--namespace %s and %s: use only one", f.namespace, args[0])}
	}
	if isBoth && namespace == "" || name == "" || strings.Contains(name, "/") {
		return t, "", cli.UsageError{Err: fmt.Errorf("%q: must be NAME or NAMESPACE/NAME", args[0])}
	}
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return top.Target{Namespace: namespace, Name: name}, namespace + "/" + name, nil
}

// settleTime is how long --once waits for the agents' states.
const settleTime = 5 * time.Second

// showTop follows the board's pods and shows them until the user quits, or once.
func showTop(ctx context.Context, cmd *cobra.Command, board *top.Board, title string, once bool, output cli.Format) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ran := make(chan error, 1)
	go func() { ran <- board.Run(ctx); cancel() }()
	style := top.Style{Colour: styleOf(os.Stdout).Colour}
	var err error
	var now top.View
	if once {
		board.Settle(ctx, settleTime)
		now = top.View{Title: title, Now: time.Now()}
		now.Pods, now.IsAll, now.Problem = board.Snapshot()
	} else {
		err = top.Screen(ctx, board, title, style.Colour)
	}
	cancel()
	if failed := <-ran; failed != nil {
		return failed
	}
	switch {
	case err != nil || !once:
		return err
	case output == cli.JSON:
		if now.Pods == nil {
			now.Pods = []top.Pod{}
		}
		return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]any{"pods": now.Pods, "all": now.IsAll})
	}
	_, err = fmt.Fprint(cmd.OutOrStdout(), now.Text(style))
	return err
}
