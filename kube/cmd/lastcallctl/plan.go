package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/internal/sidecar/podend"
	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
	"github.com/lastcall-dev/lastcall/kube/cmd/internal/kubeflags"
	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/manifest"
	"github.com/lastcall-dev/lastcall/kube/plan"
	"github.com/lastcall-dev/lastcall/kube/pod"
	"github.com/lastcall-dev/lastcall/rehearsal/console"
)

const planHelp = `Show how the pods of a manifest will end, as a timeline: preStop hooks, stop signals, the drain of the
proxy, the last call and SIGKILL; until when new connections are served, when requests in flight are cut, and how long
the pod waits for nothing. Nothing is run: the rules are those of the kubelet, of lastcall and of the meshes, and
rehearse judges by the same ones.

What an app does at its stop signal is not in a manifest, unless its program is a known server: what depends on it is
shown as unknown, with what can happen. --app sets the behaviour; lastcallctl rehearse service shows which one it is.

With --advise it prints instead the smallest timers with which no request is lost: the preStop sleep or lastcall's
minimum drain, and terminationGracePeriodSeconds, each with its reason and a patch. --request is then the longest
request, and --propagation the latest new connection, as lastcallctl observe reports it (LATE).

Exit code: 0, 1 if --request is given and a request is lost for certain, or if no timers suffice; 2 for wrong flags and
for input that is not readable.`

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
			"  lastcallctl inject --image lastcall deployment.yaml | lastcallctl plan --request 10s -\n" +
			"  lastcallctl plan -o svg deployment.yaml > plan.svg\n" +
			"  lastcallctl plan --advise --request 20s --propagation 4s deployment.yaml",
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	flags := cmd.Flags()
	f.files.register(flags)
	cli.OutputFlag(flags, &f.output, "output format", "svg")
	flags.BoolVar(&f.advise, "advise", false,
		"print the smallest timers that lose no request; needs --request and --propagation")
	flags.DurationVar(&f.request, "request", 10*time.Second, "how long a request takes")
	flags.DurationVar(&f.propagation, "propagation", 2*time.Second, "how long clients still connect after the deletion; "+
		"without the flag at least as long as a load balancer in the input does")
	reactions := []string{string(podend.Unsure)}
	for _, r := range podend.Reactions() {
		reactions = append(reactions, string(r))
	}
	cli.ChoiceFlag(flags, &f.app, "app", reactions[0], reactions, "what the app does at its stop signal")
	istioSidecarFlag(flags, &f.istio)
	flags.StringVarP(&f.namespace, "namespace", "n", "", "`namespace` of workloads that have none")
	kubeflags.MeshConfig(flags, &f.mesh)
	return cmd
}

func (f *planFlags) run(cmd *cobra.Command, args []string) error {
	if min(f.request, f.propagation) < 0 || max(f.request, f.propagation) > 24*time.Hour {
		return cli.UsageError{Err: errors.New("--request and --propagation must be 0s to 24h")}
	}
	isSet := cmd.Flags().Changed
	if f.advise && (!isSet("request") || !isSet("propagation") || isSet("output")) {
		return cli.UsageError{Err: errors.New("--advise needs --request and --propagation, and has no -o")}
	}
	files, err := f.files.read(cmd, args)
	if err != nil {
		return err
	}
	all, unread := manifest.Serving(files)
	for _, text := range unread {
		fmt.Fprintln(cmd.ErrOrStderr(), text)
	}
	if len(all) == 0 {
		return cli.UsageError{Err: fmt.Errorf("%s has no Pod, Deployment or other workload that serves",
			strings.Join(slices.Concat(f.files, args), ", "))}
	}
	o := plan.Options{Request: f.request, Propagation: f.propagation}
	o.Istio = inject.Sidecar(f.istio)
	if f.app != string(podend.Unsure) {
		o.App = podend.Reaction(f.app)
	}
	if o.MeshConfig, err = kubeflags.ReadMeshConfig(f.mesh); err != nil {
		return err
	}
	namespaces, services := map[string]inject.Namespace{}, map[string][]corev1.Service{}
	var objects []*manifest.Object
	for _, file := range files {
		objects = append(objects, file.Objects...)
		for _, object := range file.Objects {
			var s corev1.Service
			if object.Is("", "Service") && object.Decode(&s) == nil {
				services[object.Namespace] = append(services[object.Namespace], s)
			}
			if object.Is("", "Namespace") {
				namespaces[object.Name] = inject.Namespace{
					Name: object.Name, Labels: object.Labels, Annotations: object.Annotations,
				}
			}
		}
	}
	out, style, failed := cmd.OutOrStdout(), console.StyleFor(os.Stdout), false
	var plans []*plan.Plan
	balancers := manifest.Balancers(objects)
	for i, w := range all {
		o.Namespace = inject.Namespace{Name: cmp.Or(w.Namespace, f.namespace)}
		if ns, ok := namespaces[o.Namespace.Name]; ok {
			o.Namespace = ns
		}
		o.Targets, o.Propagation = nil, f.propagation
		late := ""
		for _, s := range services[w.Namespace] {
			selector := labels.SelectorFromSet(s.Spec.Selector)
			if len(s.Spec.Selector) == 0 || !selector.Matches(labels.Set(w.Pod.Labels)) {
				continue
			}
			o.Targets = append(o.Targets, pod.Targets(&s)...)
			for _, b := range balancers {
				isBefore := b.Namespace == w.Namespace && slices.Contains(b.Services, s.Name)
				if isBefore && b.Notices > o.Propagation && !isSet("propagation") {
					o.Propagation, late = b.Notices, b.String()+" ("+b.Field+"): "+b.Name
				}
			}
		}
		isText := f.advise || f.output == cli.PlainText
		if isText && i > 0 {
			_, _ = fmt.Fprintln(out)
		}
		if f.advise {
			isFound, err := plan.WriteAdvice(out, w.String(), w.Pod, o)
			if err != nil {
				return err
			}
			failed = failed || !isFound
			continue
		}
		o.Knative = w.IsKnative()
		p := plan.New(w.String(), w.Pod, o)
		if late != "" {
			p.Notes = append(p.Notes, late+" sends new connections for up to "+terminal.Seconds(o.Propagation)+
				" after the deletion")
		}
		plans = append(plans, p)
		failed = failed || isSet("request") && p.Lost() > 0
		if isText {
			err = errors.Join(err, p.WriteText(out, style))
		}
	}
	switch {
	case f.advise:
	case f.output == "svg":
		err = plan.WriteSVG(out, plans)
	case f.output == cli.JSON:
		err = plan.WriteJSON(out, plans)
	}
	if err == nil && failed {
		err = cli.ErrReported
	}
	return err
}
