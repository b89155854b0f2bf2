package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/internal/sidecar/course"
	"github.com/lastcall-dev/lastcall/kube/cmd/internal/kubeflags"
	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/manifest"
	"github.com/lastcall-dev/lastcall/kube/plan"
	"github.com/lastcall-dev/lastcall/rehearsal/console"
)

const planHelp = `Show how the pods of a manifest will end, as a timeline: preStop hooks, stop signals, the drain of the proxy, the last call and SIGKILL; until when new connections are served, when requests in flight are cut, and how long the pod waits for nothing. Nothing is run: the rules are those of the kubelet, of lastcall and of the meshes, and rehearse judges by the same ones.

What an app does at its stop signal is not in a manifest: by default it exits at once. --app sets another behaviour; lastcallctl rehearse service shows which one it is.

With --advise it prints instead the smallest timers with which no request is lost: the preStop sleep or lastcall's minimum drain, and terminationGracePeriodSeconds, each with its reason and a patch. --request is then the longest request, and --propagation the latest new connection, as lastcallctl observe reports it (LATE).

Exit code: 0, 1 if --request is given and a request is lost, or if no timers suffice; 2 for wrong flags and for input that is not readable.`

type planFlags struct {
	files
	mesh, namespace, app, istio string
	output                      cli.Format
	request, propagation        time.Duration
	advise                      bool
}

func planCommand() *cobra.Command {
	var f planFlags
	cmd := &cobra.Command{
		Use:   "plan FILE…",
		Short: "Show how the pods of a manifest will end",
		Long:  planHelp,
		Example: "  lastcallctl plan deployment.yaml\n" +
			"  lastcallctl inject --image lastcall deployment.yaml | lastcallctl plan --request 10s -\n  lastcallctl plan -o svg deployment.yaml > plan.svg\n" +
			"  lastcallctl plan --advise --request 20s --propagation 4s deployment.yaml",
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	flags := cmd.Flags()
	f.files.register(flags)
	cli.OutputFlag(flags, &f.output, "output format", "svg")
	flags.BoolVar(&f.advise, "advise", false, "print the smallest timers that lose no request; needs --request and --propagation")
	flags.DurationVar(&f.request, "request", 10*time.Second, "how long a request takes")
	flags.DurationVar(&f.propagation, "propagation", 2*time.Second, "how long clients still connect after the deletion")
	cli.ChoiceFlag(flags, &f.app, "app", "exits", reactionNames(), "what the app does at its stop signal")
	istioSidecarFlag(flags, &f.istio)
	flags.StringVarP(&f.namespace, "namespace", "n", "", "`namespace` of workloads that have none")
	kubeflags.MeshConfig(flags, &f.mesh)
	return cmd
}

func reactionNames() []string {
	var out []string
	for _, r := range course.Reactions() {
		out = append(out, string(r))
	}
	return out
}

func (f *planFlags) run(cmd *cobra.Command, args []string) error {
	given, err := f.files.and(args)
	if err != nil {
		return err
	}
	if min(f.request, f.propagation) < 0 || max(f.request, f.propagation) > 24*time.Hour {
		return cli.UsageError{Err: errors.New("--request and --propagation must be 0s to 24h")}
	}
	if isSet := cmd.Flags().Changed; f.advise && (!isSet("request") || !isSet("propagation") || isSet("output")) {
		return cli.UsageError{Err: errors.New("--advise needs --request and --propagation, and has no -o")}
	}
	o := plan.Options{Request: f.request, Propagation: f.propagation}
	o.App, o.Istio = course.Reaction(f.app), inject.Sidecar(f.istio)
	if o.MeshConfig, err = kubeflags.ReadMeshConfig(f.mesh); err != nil {
		return err
	}
	pods, err := f.pods(cmd, given, o)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if f.advise {
		return writeAdvice(out, pods)
	}
	var plans []*plan.Plan
	for _, p := range pods {
		plans = append(plans, plan.New(p.String(), p.Pod, p.options))
	}
	style := console.StyleFor(os.Stdout)
	switch f.output {
	case "svg":
		err = plan.WriteSVG(out, plans)
	case cli.JSON:
		err = plan.WriteJSON(out, plans)
	default:
		for i, p := range plans {
			if i > 0 {
				_, _ = fmt.Fprintln(out)
			}
			if err = p.WriteText(out, style); err != nil {
				break
			}
		}
	}
	if err == nil && cmd.Flags().Changed("request") {
		for _, p := range plans {
			if p.Lost() > 0 {
				return cli.ErrReported
			}
		}
	}
	return err
}

func writeAdvice(out io.Writer, pods []planned) error {
	found := true
	for i, p := range pods {
		if i > 0 {
			_, _ = fmt.Fprintln(out)
		}
		isFound, err := plan.WriteAdvice(out, p.String(), p.Pod, p.options)
		if err != nil {
			return err
		}
		found = found && isFound
	}
	if !found {
		return cli.ErrReported
	}
	return nil
}

// planned is a workload with what decides how its pods end.
type planned struct {
	*manifest.Workload
	options plan.Options
}

// pods are the workloads of the input that serve clients.
func (f *planFlags) pods(cmd *cobra.Command, given []string, o plan.Options) ([]planned, error) {
	files, err := manifest.Read(given, cmd.InOrStdin())
	if err != nil {
		return nil, cli.UsageError{Err: fmt.Errorf("the manifest must be a file, a folder, a pattern or -: %w", err)}
	}
	all, err := manifest.Serving(files)
	if err != nil {
		return nil, cli.UsageError{Err: err}
	}
	if len(all) == 0 {
		return nil, cli.UsageError{Err: fmt.Errorf("%s has no Pod, Deployment or other workload that serves", strings.Join(given, ", "))}
	}
	namespaces := map[string]inject.Namespace{}
	for _, file := range files {
		for _, object := range file.Objects {
			if object.Is("", "Namespace") {
				namespaces[object.Name] = inject.Namespace{Name: object.Name, Labels: object.Labels, Annotations: object.Annotations}
			}
		}
	}
	out := make([]planned, 0, len(all))
	for _, w := range all {
		o := o
		o.Namespace.Name = cmp.Or(w.Namespace, f.namespace)
		if ns, ok := namespaces[o.Namespace.Name]; ok {
			o.Namespace = ns
		}
		out = append(out, planned{w, o})
	}
	return out, nil
}
