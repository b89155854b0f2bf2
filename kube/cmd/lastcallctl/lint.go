package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/kube/cmd/internal/kubeconfig"
	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/lint"
	"github.com/lastcall-dev/lastcall/kube/lint/report"
	"github.com/lastcall-dev/lastcall/kube/manifest"
)

const lintHelp = `Find settings of manifests with which pods lose requests when they stop.

The command reads files, folders, patterns in quotes and standard input: YAML in any number of documents, JSON, Lists, and the output of kustomize and Helm. It examines the whole input together: a Service with its pods, a HorizontalPodAutoscaler with its Deployment, Istio's MeshConfig (IstioOperator, ConfigMap) with all pods. Each pod is judged by the mesh that it has. docs/lint.md has a page for each rule.

A comment "# lastcall:ignore LC010" at the end of a line, or alone above it, switches a rule off for that line; above the first line of a document, for the whole document.

With --fix, standard output is a patch for findings with one right answer, mostly a longer grace period, and the exit code is 0.

Exit code: 0 without findings of the severity of --fail-on, 1 with one, 2 for wrong flags and files that do not exist. A manifest that is not readable is a finding.`

type lintFlags struct {
	files                          []string
	output                         cli.Format
	failOn, mesh, istio            string
	rules, cluster, fix            bool
	kubeconfig, context, namespace string
	timeout                        time.Duration
}

// filesByFlag refuses arguments, which are mostly files without -f.
func filesByFlag(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return cli.UsageError{Err: fmt.Errorf("unexpected argument %q: put files after -f", args[0])}
}

func lintCommand() *cobra.Command {
	var f lintFlags
	cmd := &cobra.Command{
		Use:     "lint -f FILE|FOLDER|-",
		Short:   "Find settings with which pods lose requests when they stop",
		Long:    lintHelp,
		Example: "  lastcallctl lint -f deploy/\n  helm template . | lastcallctl lint -f -\n  lastcallctl lint -f deploy/ -o sarif > lint.sarif\n  lastcallctl lint --cluster -n shop",
		Args:    filesByFlag,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&f.files, "filename", "f", nil, "manifest `file`, folder or pattern, or - for standard input; may be repeated")
	flags.StringVar(&f.mesh, "mesh-config", "", "`file` with Istio's MeshConfig, whose defaultConfig applies to all pods")
	cli.ChoiceFlag(flags, &f.istio, "istio-sidecar", string(inject.Native), []string{string(inject.Native), string(inject.Classic)}, "form of the sidecar that Istio will inject")
	cli.OutputFlag(flags, &f.output, "output format", "sarif", "junit", "github")
	cli.ChoiceFlag(flags, &f.failOn, "fail-on", lint.FailOn()[0], lint.FailOn(), "least severity that makes the exit code 1")
	flags.BoolVar(&f.fix, "fix", false, "write a patch (git apply, patch -p1) instead of the findings")
	flags.BoolVar(&f.rules, "rules", false, "list the rules")
	cli.Group(flags, "Cluster", func(flags *pflag.FlagSet) {
		flags.BoolVar(&f.cluster, "cluster", false, "examine the objects of a cluster instead of files")
		flags.StringVarP(&f.namespace, "namespace", "n", "", "`namespace` to examine (default all)")
		flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig `file` (default KUBECONFIG or ~/.kube/config)")
		flags.StringVar(&f.context, "context", "", "`name` of the kubeconfig's context (default the current one)")
		flags.DurationVar(&f.timeout, "timeout", time.Minute, "time limit for reading the cluster")
	})
	return cmd
}

func (f *lintFlags) run(cmd *cobra.Command) error {
	if f.rules {
		for _, r := range lint.Rules() {
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s  %s\n", r.ID, r.Text); err != nil {
				return err
			}
		}
		return nil
	}
	options := lint.Options{Istio: inject.Sidecar(f.istio)}
	if f.mesh != "" {
		text, err := os.ReadFile(f.mesh)
		if err != nil {
			return cli.UsageError{Err: fmt.Errorf("--mesh-config must be a file: %w", err)}
		}
		options.MeshConfig = string(text)
	}
	files, err := f.input(cmd)
	if err != nil {
		return err
	}
	result := lint.Examine(files, options)
	if f.fix {
		return f.writePatch(cmd, files, result)
	}
	if err := report.Write(cmd.OutOrStdout(), string(f.output), result, cli.Version(version)); err != nil {
		return err
	}
	fmt.Fprintln(cmd.ErrOrStderr(), report.Summary(result))
	if result.Examined == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "nothing examined: the input has no Pod, Deployment or other workload, no Service, and no configuration of Istio")
	}
	if result.Fails(f.failOn) {
		return cli.ErrReported
	}
	return nil
}

// writePatch writes a unified diff of the files.
func (f *lintFlags) writePatch(cmd *cobra.Command, files []*manifest.File, r *lint.Result) error {
	fixed := 0
	for _, file := range files {
		text, n := lint.Patched(file, r.Findings)
		fixed += n
		name := strings.TrimLeft(path.Clean(file.Name), "/")
		if _, err := cmd.OutOrStdout().Write(diff.Diff("a/"+name, file.Text, "b/"+name, text)); err != nil {
			return err
		}
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s; the patch fixes %d of them\n", report.Summary(r), fixed)
	return nil
}

func (f *lintFlags) input(cmd *cobra.Command) ([]*manifest.File, error) {
	switch {
	case f.cluster && len(f.files) > 0:
		return nil, cli.UsageError{Err: errors.New("use only one of --cluster and -f")}
	case f.cluster:
		file, err := f.readCluster(cmd.Context(), cmd.ErrOrStderr())
		return []*manifest.File{file}, err
	case len(f.files) == 0:
		return nil, cli.UsageError{Err: errors.New("missing -f FILE: a manifest, a folder, or - for standard input; or --cluster")}
	}
	files, err := manifest.Read(f.files, cmd.InOrStdin())
	if err != nil {
		return nil, cli.UsageError{Err: fmt.Errorf("-f must be a file, a folder, a pattern or -: %w", err)}
	}
	return files, nil
}

// clusterResources are those that have rules, and those that the rules need.
var clusterResources = []schema.GroupVersionResource{
	{Version: "v1", Resource: "namespaces"}, {Version: "v1", Resource: "services"}, {Version: "v1", Resource: "pods"},
	{Group: "apps", Version: "v1", Resource: "deployments"}, {Group: "apps", Version: "v1", Resource: "statefulsets"},
	{Group: "apps", Version: "v1", Resource: "daemonsets"}, {Group: "apps", Version: "v1", Resource: "replicasets"},
	{Group: "batch", Version: "v1", Resource: "jobs"}, {Group: "batch", Version: "v1", Resource: "cronjobs"},
	{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"},
	{Group: "argoproj.io", Version: "v1alpha1", Resource: "rollouts"},
	{Group: "serving.knative.dev", Version: "v1", Resource: "services"}, {Group: "networking.istio.io", Version: "v1beta1", Resource: "proxyconfigs"},
}

func (f *lintFlags) readCluster(ctx context.Context, notes io.Writer) (*manifest.File, error) {
	if f.timeout <= 0 {
		return nil, cli.UsageError{Err: fmt.Errorf("--timeout %v: must be positive", f.timeout)}
	}
	config, err := kubeconfig.RESTConfigOf(f.kubeconfig, f.context)
	if err != nil {
		return nil, cli.UsageError{Err: fmt.Errorf("connect to the API server: %w", err)}
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	ctx, stop := cli.SignalContext(ctx)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	file, forbidden, err := manifest.FromCluster(ctx, client, f.namespace, clusterResources)
	if err != nil {
		return nil, err
	}
	for _, err := range forbidden {
		fmt.Fprintf(notes, "not examined: %v\n", err)
	}
	configMaps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	if mesh, err := client.Resource(configMaps).Namespace("istio-system").Get(ctx, "istio", metav1.GetOptions{}); err == nil { // not there, or not permitted: without Istio's MeshConfig
		return file, file.Add(mesh)
	}
	return file, nil
}
